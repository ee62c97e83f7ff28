package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// holder is the process of Hold, as its parent sees it.
type holder struct {
	process
	cmd   *exec.Cmd
	leash io.WriteCloser // the holder ends if this closes before stay
}

const stayWord = "stay\n"

// startHolder starts the holder, which inherits the lock, and waits until the routes exist.
func startHolder(ctx context.Context, name string, self []string, lock *os.File) (*holder, error) {
	if len(self) == 0 {
		return nil, errors.New("nothing to run as the holder of multicast routes")
	}
	h := &holder{cmd: exec.Command(self[0], append(self[1:len(self):len(self)], "hold", name)...)}
	var said bytes.Buffer
	h.cmd.Stderr = &said
	h.cmd.ExtraFiles = []*os.File{lock}
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
	ready, _ := io.ReadAll(out)
	if string(ready) != "ready\n" {
		h.stop()
		return nil, errors.Join(ctx.Err(), fmt.Errorf("the holder of multicast routes: %s", strings.TrimSpace(said.String())))
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

// obey ends this process, the holder, when its parent exits without telling it to stay.
func obey(leash io.Reader) {
	word := make([]byte, len(stayWord))
	if _, err := io.ReadFull(leash, word); err != nil || string(word) != stayWord {
		os.Exit(1)
	}
	for {
		time.Sleep(time.Hour)
	}
}
