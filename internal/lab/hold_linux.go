package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Hold is the holder process. It programs the multicast routes of all switches, reports that on
// ready, and keeps running, because the routes vanish with its sockets. It ends when it is
// killed, or when leash ends without the message "stay".
func Hold(name string, leash io.Reader, ready io.WriteCloser) error {
	// The holder has its own session, but a signal to all processes would still reach it.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	_, plan, err := readPlan(name)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(logPath(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	w := &watcher{plan: plan, log: log, said: map[string]bool{}}
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
		go w.watch(node, sockets[len(sockets)-1])
	}
	if _, err := io.WriteString(ready, "ready\n"); err != nil {
		return err
	}
	if err := ready.Close(); err != nil {
		return err
	}
	obey(leash)
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
			err = errors.Join(m.addVIF(i, ifi.Index), m.hear(ifi.Index))
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
