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
func TestFullQueue(t *testing.T) {
	var p udpPause
	group := GroupsFor(1, 1, false)[0]
	fail := func(err error) error {
		return p.explain(&net.OpError{Op: "write", Net: "udp4", Err: os.NewSyscallError("sendto", err)}, group)
	}
	if err := fail(unix.EPERM); err == nil || errors.Is(err, fabric.ErrBusy) || !errors.Is(err, unix.EPERM) {
		t.Errorf("EPERM: %v", err)
	}
	if err := fail(os.ErrDeadlineExceeded); !errors.Is(err, fabric.ErrBusy) || p != 0 {
		t.Errorf("a deadline: %v, and a pause of %v", err, time.Duration(p))
	}
	for i, want := 0, udpFirstPause; i < 12; i, want = i+1, min(2*want, udpMaxPause) {
		if err := fail(unix.ENOBUFS); !errors.Is(err, fabric.ErrBusy) {
			t.Fatalf("ENOBUFS: %v", err)
		}
		if p != want {
			t.Errorf("try %d: a pause of %v, want %v", i, time.Duration(p), time.Duration(want))
		}
		start := time.Now()
		if !p.sleep(time.Second) {
			t.Errorf("try %d: no pause", i)
		}
		if got := time.Since(start); got < time.Duration(want) {
			t.Errorf("try %d: the pause was %v, want at least %v", i, got, time.Duration(want))
		}
	}
	if err := p.explain(nil, group); err != nil || p != 0 {
		t.Errorf("after a success: %v, and a pause of %v", err, time.Duration(p))
	}
	if err := fail(net.ErrClosed); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
