package ip

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/fabric"
)

// udpPause is how long the next Await sleeps while a device's queue is full, since the kernel does not
// report when the queue has room. 0: the queue is not full.
type udpPause time.Duration

const (
	udpFirstPause = udpPause(20 * time.Microsecond)
	udpMaxPause   = udpPause(5 * time.Millisecond)
)

// explain turns the result of a send to a group into an error of the fabric, and notes whether the queue is
// full.
func (p *udpPause) explain(err error, group netip.AddrPort) error {
	switch {
	case err == nil:
		*p = 0
		return nil
	case errors.Is(err, net.ErrClosed):
		return fabric.ErrClosed
	case mcastNoBuffers(err):
		*p = max(*p, udpFirstPause)
		return fabric.ErrBusy
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.EAGAIN):
		return fabric.ErrBusy
	}
	return fmt.Errorf("multicast to %v: %w%s", group, err, udpAdvice(err))
}

// sleep backs off if the queue is full, for at most d, and reports whether the queue was full. Each
// sleep is twice as long as the one before.
func (p *udpPause) sleep(d time.Duration) bool {
	if *p == 0 {
		return false
	}
	time.Sleep(min(time.Duration(*p), d))
	*p = min(2**p, udpMaxPause)
	return true
}
