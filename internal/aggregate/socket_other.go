//go:build !linux

package aggregate

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

// Other systems have plain sockets of the standard library: one datagram per call.

func (s *socket) prepare(_ int, o socketOptions) error {
	if o.shared {
		return errors.New("several cores need Linux: use --cores 1")
	}
	return nil
}

// measure requests the receive buffer, and halves the request while the system refuses it, as BSD systems do.
func (s *socket) measure(wanted int) {
	const limit = 64 << 10
	for ; wanted > limit; wanted /= 2 {
		if s.conn.SetReadBuffer(wanted) == nil {
			break
		}
	}
	s.buffer = wanted
}

// drops is 0, since the system does not tell.
func (s *socket) drops() uint64 { return 0 }

type inbox struct {
	memory []byte
	n      int
}

func newInbox() *inbox { return &inbox{memory: make([]byte, 1<<16)} }

func (s *socket) receive(in *inbox) (int, error) {
	for {
		n, _, err := s.conn.ReadFromUDPAddrPort(in.memory)
		switch {
		case err == nil:
			in.n = n
			return 1, nil
		case errors.Is(err, net.ErrClosed):
			return 0, ErrClosed
		default:
			// The answer to an earlier datagram: its receiver is gone. Systems differ in how they tell.
			time.Sleep(time.Millisecond)
		}
	}
}

func (in *inbox) message(int) (b []byte, segment int) { return in.memory[:in.n], 0 }

type outbox struct {
	patience time.Duration
	end      time.Time
}

// newOutbox returns an outbox whose sends wait for room, but not longer than patience per batch.
func newOutbox(patience time.Duration) *outbox { return &outbox{patience: patience} }

// begin starts a batch. All its sends together wait for room only as long as one.
func (o *outbox) begin() { o.end = time.Time{} }

// send sends a train with datagrams of segment bytes. It returns how many were sent, and the first error.
func (s *socket) send(o *outbox, to netip.AddrPort, train []byte, segment int) (sent int, err error) {
	if s.v6 {
		to = netip.AddrPortFrom(netip.AddrFrom16(to.Addr().As16()), to.Port())
	}
	if o.end.IsZero() {
		o.end = time.Now().Add(o.patience)
		_ = s.conn.SetWriteDeadline(o.end) // fails only if closed, as the write will
	}
	return s.sendEach(train, segment, func(d []byte) error {
		_, err := s.conn.WriteToUDPAddrPort(d, to)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return errNoRoom
		}
		return ended(err)
	})
}

// poll is for systems where a socket can be read without waiting.
func (s *socket) poll(*inbox) int { return 0 }
