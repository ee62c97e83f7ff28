package control

import (
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/wire"
)

const (
	socketRoom = 16
	kernelRoom = 8192
)

// limits is what keeps the kernel from receiving.
type limits struct {
	noArea   bool // the Placer cannot place in the receive buffer
	refused  int  // subgroup that the Placer refuses; -1: none
	unpolled int  // subgroup that the Poller does not serve; -1: none
}

// placedNet is a multicast network with a Poller and a Placer.
type placedNet struct {
	limits
	closed   chan struct{} // by Close
	unserved chan struct{} // by the Poller's Close
	serving  sync.WaitGroup
}

func (n *placedNet) Capabilities() fabric.Capabilities {
	return fabric.Capabilities{
		Chunk: 100, Batch: 4, Room: socketRoom, Overhead: 16, Header: wire.HeaderSize,
		Poller: placedPoller{n}, Placer: placer{n},
	}
}

func (n *placedNet) Subgroups() int           { return 2 }
func (n *placedNet) Streams() int             { return 2 }
func (n *placedNet) Sender(int) fabric.Sender { return &nowhere{} }
func (n *placedNet) Close() error             { close(n.closed); return nil }

func (n *placedNet) Receiver(sub int) fabric.Receiver {
	return &placedReceiver{net: n, sub: sub, wake: make(chan struct{}, 1)}
}

type placedReceiver struct {
	net  *placedNet
	sub  int
	wake chan struct{}
}

func (r *placedReceiver) Pending() bool               { return false }
func (r *placedReceiver) Stats() fabric.ReceiverStats { return fabric.ReceiverStats{} }

func (r *placedReceiver) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *placedReceiver) Receive(s fabric.Sink) error {
	select {
	case <-r.wake:
		s.Idle()
		return nil
	case <-r.net.closed:
		return fabric.ErrClosed
	}
}

func (r *placedReceiver) Attach(_ fabric.Poller, s fabric.Sink, _ func(error)) bool {
	if r.sub == r.net.unpolled {
		return false
	}
	r.net.serving.Go(func() {
		for {
			select {
			case <-r.wake:
				s.Idle()
			case <-r.net.unserved:
				return
			}
		}
	})
	return true
}

type placedPoller struct{ *placedNet }

func (p placedPoller) Lead() bool              { return false }
func (p placedPoller) Poll(time.Duration) bool { return false }
func (p placedPoller) Gather(time.Duration)    {}
func (p placedPoller) Yield()                  {}
func (p placedPoller) Rest(time.Duration)      {}
func (p placedPoller) Kick()                   {}

func (p placedPoller) Close() error {
	close(p.unserved)
	p.serving.Wait()
	return nil
}

type placer struct{ *placedNet }

func (p placer) Close() error { return nil }

func (p placer) Room() int          { return kernelRoom }
func (p placer) Watch(func()) error { return nil }
func (p placer) Lost() uint64       { return 0 }
func (p placer) Wake()              {}

func (p placer) Area([]byte) fabric.Area {
	if p.noArea {
		return nil
	}
	return limitedArea{p.refused}
}

// limitedArea has no placement for one subgroup.
type limitedArea struct{ refused int }

func (limitedArea) Stage() []byte { return nil }
func (limitedArea) Release()      {}

func (a limitedArea) Open(s *fabric.PlacementSpec) fabric.OpenPlacement {
	if s.Stream == a.refused {
		return nil
	}
	return unplaced{make([]place.Word, place.Words(s.PSNs))}
}

// unplaced is a placement in which the kernel places nothing.
type unplaced struct{ words []place.Word }

func (u unplaced) Words() []place.Word                  { return u.words }
func (u unplaced) Counted() uint64                      { return 0 }
func (u unplaced) Count(uint32) bool                    { return false }
func (u unplaced) Ignored() (dup, late, foreign uint64) { return 0, 0, 0 }
func (u unplaced) Close()                               {}

// nowhere takes all datagrams.
type nowhere struct{ datagrams uint64 }

func (n *nowhere) Send(b *fabric.Batch) (int, error) {
	n.datagrams += uint64(len(b.Headers))
	return len(b.Headers), nil
}

func (n *nowhere) Completed() uint64   { return n.datagrams }
func (n *nowhere) Await(time.Duration) {}

// granting is a reliable network that shows the credit in a rank's barrier message.
type granting struct {
	memReliable
	grant chan uint64
}

func (g granting) Send(_ int, msg []byte) {
	if m, err := wire.ParseMsg(msg); err == nil && m.Kind == wire.MsgBarrier {
		g.grant <- m.Grant
	}
}

func (g granting) SendMore(to int, msg []byte) { g.Send(to, msg) }

// Credit follows the path that really receives. If the kernel receives for all subgroups, a rank grants
// the kernel's room. If the process receives for one of them, the rank grants what its sockets hold.
func TestCreditFollowsTheReceiver(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits limits
		kernel bool
	}{
		{"kernel", limits{refused: -1, unpolled: -1}, true},
		{"no area", limits{noArea: true, refused: -1, unpolled: -1}, false},
		{"no placement for one subgroup", limits{refused: 1, unpolled: -1}, false},
		{"no poller for one subgroup", limits{refused: -1, unpolled: 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &placedNet{limits: c.limits, closed: make(chan struct{}), unserved: make(chan struct{})}
			m := newMemNet(2).ranks[1]
			grant := make(chan uint64, 1)
			e, err := newEngine(Config{
				Config: process(1, 2), Secret: []byte("secret"), Multicast: n,
				Reliable: func(h fabric.Handler) (fabric.Reliable, error) {
					m.h = h
					return reliable(granting{memReliable{m}, grant}), nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }()
			const chunks = 10_000
			call := Call{Kind: wire.Broadcast, Algo: Multicast, Subgroups: 2, Recv: make([]byte, chunks*100)}
			if _, err := e.Start(World, call); err != nil {
				t.Fatal(err)
			}
			got := <-grant
			switch {
			case c.kernel && got <= socketRoom:
				t.Errorf("grants %d datagrams: the kernel has room for %d", got, kernelRoom)
			case !c.kernel && got > socketRoom:
				t.Errorf("grants %d datagrams: the sockets hold %d", got, socketRoom)
			}
		})
	}
}
