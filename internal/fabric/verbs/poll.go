//go:build verbs

package verbs

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollable is a descriptor that Go's poller waits for.
type pollable struct {
	f   *os.File
	raw syscall.RawConn
}

// newPollable duplicates a descriptor, since libraries close theirs. Whether reads block is a property
// of the file, so it holds for both.
func newPollable(fd int, name string) (p pollable, err error) {
	if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return p, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return p, err
	}
	p.f = os.NewFile(uintptr(fd), name)
	if p.raw, err = p.f.SyscallConn(); err == nil {
		err = p.f.SetReadDeadline(time.Time{}) // not every file supports polling
	}
	if err != nil {
		_ = p.f.Close()
	}
	return p, err
}

// A watcher is a goroutine that handles the events of a library's descriptor.
type watcher struct {
	pollable
	ended chan struct{}
}

func newWatcher(fd int, name string) (*watcher, error) {
	p, err := newPollable(fd, name)
	return &watcher{p, make(chan struct{})}, err
}

// run handles events until stop, or until take fails. take returns 0 if there is no event, and -errno
// if it failed, which is the last event. run calls late when the read deadline has passed.
func (w *watcher) run(take func() int, handle func(kind int), late func()) {
	defer close(w.ended)
	for kind := 0; kind >= 0; {
		err := w.raw.Read(func(uintptr) bool {
			kind = take()
			return kind != 0
		})
		switch {
		case err == nil:
			handle(kind)
		case errors.Is(err, os.ErrDeadlineExceeded):
			late()
		default:
			return // stop was called
		}
	}
}

// stop ends the goroutine, and waits until it has ended.
func (w *watcher) stop() {
	_ = w.f.Close()
	<-w.ended
}
