package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// holder is the process of Hold, as its parent sees it.
type holder struct {
	process
	cmd         *exec.Cmd
	leash       io.WriteCloser // the holder ends if this closes before stay
	aggregators []process      // started by the holder
}

const (
	stayWord = "stay\n"
	lockFD   = 3 // of the holder: the lock, which it keeps until it ends
)

// startHolder starts the holder, which inherits the lock, and waits until the routes exist.
func startHolder(ctx context.Context, name string, self []string, lock *os.File) (*holder, error) {
	if len(self) == 0 {
		return nil, errors.New("nothing to run as the holder of multicast routes")
	}
	h := &holder{cmd: exec.Command(self[0], append(self[1:len(self):len(self)], "hold", name)...)}
	var stderr bytes.Buffer
	h.cmd.Stderr = &stderr
	h.cmd.ExtraFiles = []*os.File{lock} // lockFD
	// Outside the terminal's process group: this process handles Ctrl-C.
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	if h.leash, err = h.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the holder of multicast routes: %w", err)
	}
	cancel := context.AfterFunc(ctx, func() { _ = h.cmd.Process.Kill() })
	defer cancel()
	text, _ := io.ReadAll(out)
	if err := json.Unmarshal(text, &h.aggregators); err != nil {
		h.stop()
		return nil, errors.Join(ctx.Err(), fmt.Errorf("the holder of multicast routes: %s", bytes.TrimSpace(stderr.Bytes())))
	}
	if h.process, err = findProcess(h.cmd.Process.Pid); err != nil {
		h.stop()
		return nil, fmt.Errorf("the holder of multicast routes: %w", err)
	}
	return h, nil
}

// stay makes the holder outlive this process.
func (h *holder) stay() error {
	if _, err := io.WriteString(h.leash, stayWord); err != nil {
		return fmt.Errorf("the holder of multicast routes: %w", err)
	}
	return nil
}

// stop ends the holder.
func (h *holder) stop() {
	if h == nil {
		return
	}
	_ = h.cmd.Process.Kill() // it may have ended
	_ = h.cmd.Wait()         // by our signal
}

// Hold is the holder process. It programs the multicast routes of all switches, starts the aggregators and the
// traffic of other jobs, reports the processes of aggregators on ready, and keeps running, because the routes vanish
// with its sockets. It ends when it is killed, or when leash ends without the message "stay". The aggregators and the
// traffic end with it.
func Hold(name string, leash io.Reader, ready io.WriteCloser) error {
	// The holder has its own session, but a signal to all processes would still reach it.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	syscall.CloseOnExec(lockFD) // the aggregators must not keep the lock
	s, plan, err := readPlan(name)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(logPath(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	w := &watcher{plan: plan, members: newMembers(plan), log: log, reported: map[string]bool{}}
	var sockets []*os.File
	entries := plan.Entries()
	for _, node := range plan.switches() {
		var m *mroute
		err := inNamespace(plan.Namespace(node), func() (err error) {
			m, err = program(node, entries[node.ID])
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", node.Name, err)
		}
		// Go's poller waits for a file without a thread. The file stays open with this process.
		sockets = append(sockets, os.NewFile(uintptr(m.fd), "igmp"))
		w.members.tables[node.ID] = m
	}
	for i, node := range plan.switches() {
		go w.watch(node, sockets[i])
	}
	aggregators, err := plan.startAggregators(context.Background(), s.Aggregator)
	if err != nil {
		return err
	}
	if err := plan.startBackground(); err != nil {
		return err
	}
	if err := errors.Join(json.NewEncoder(ready).Encode(aggregators), ready.Close()); err != nil {
		return err
	}
	waitForParent(leash)
	runtime.KeepAlive(sockets)
	return nil
}

// program adds a switch's multicast routes in the namespace of the calling thread.
func program(node *Node, entries []Entry) (*mroute, error) {
	m, err := newMroute()
	if err != nil {
		return nil, err
	}
	for i, port := range node.Ports {
		ifi, err := net.InterfaceByName(port.Name)
		if err == nil {
			err = errors.Join(m.addVIF(i, ifi.Index), m.subscribe(ifi.Index))
		}
		if err != nil {
			return nil, fmt.Errorf("port %s: %w", port.Name, err)
		}
	}
	for i := range entries {
		if err := m.add(&entries[i]); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// waitForParent ends this process, the holder, if its parent exits without telling it to stay.
func waitForParent(leash io.Reader) {
	word := make([]byte, len(stayWord))
	if _, err := io.ReadFull(leash, word); err != nil || string(word) != stayWord {
		os.Exit(1)
	}
	for {
		time.Sleep(time.Hour)
	}
}
