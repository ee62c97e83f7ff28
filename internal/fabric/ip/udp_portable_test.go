//go:build unix

package ip

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// A full device queue is not a failure: the caller sends the rest of the batch after a pause.
func TestPortableSenderFullQueue(t *testing.T) {
	var s udpPortableSender
	wrap := func(errno unix.Errno) error {
		return &net.OpError{Op: "write", Net: "udp4", Err: os.NewSyscallError("sendto", errno)}
	}
	if err := s.explain(wrap(unix.EPERM)); err == nil || errors.Is(err, fabric.ErrBusy) || !errors.Is(err, unix.EPERM) {
		t.Errorf("EPERM: %v", err)
	}
	if err := s.explain(os.ErrDeadlineExceeded); !errors.Is(err, fabric.ErrBusy) || s.pause != 0 {
		t.Errorf("a deadline: %v, and a pause of %v", err, time.Duration(s.pause))
	}
	for i, want := 0, udpFirstPause; i < 12; i, want = i+1, min(2*want, udpMaxPause) {
		if err := s.explain(wrap(unix.ENOBUFS)); !errors.Is(err, fabric.ErrBusy) {
			t.Fatalf("ENOBUFS: %v", err)
		}
		if s.pause != want {
			t.Errorf("try %d: a pause of %v, want %v", i, time.Duration(s.pause), time.Duration(want))
		}
		start := time.Now()
		s.Await(time.Second)
		if got := time.Since(start); got < time.Duration(want) {
			t.Errorf("try %d: Await took %v, want at least %v", i, got, time.Duration(want))
		}
	}
	if err := s.explain(nil); err != nil || s.pause != 0 {
		t.Errorf("after a success: %v, and a pause of %v", err, time.Duration(s.pause))
	}
	s.closed.Store(true)
	if err := s.explain(wrap(unix.ENOBUFS)); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
