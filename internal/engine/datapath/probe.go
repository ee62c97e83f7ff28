package datapath

import (
	"sync"
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/probe"
)

// Probes are the tests of communicators' multicast groups that are under way. The receive workers own
// the receivers, and hand datagrams of no operation to the tests.
type Probes struct {
	send func(sub int, b *fabric.Batch) // nil: the network has no multicast

	n    atomic.Int32 // size of open
	mu   sync.Mutex
	open map[uint64]*probe.Probe // by token
}

func newProbes() Probes { return Probes{open: map[uint64]*probe.Probe{}} }

// Start lets a test receive datagrams, and sends its own until stop returns.
func (s *Probes) Start(p *probe.Probe) (stop func()) {
	s.set(p, true)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.Send(quit, s.send)
	}()
	return func() {
		close(quit)
		<-ended
		s.set(p, false)
	}
}

func (s *Probes) set(p *probe.Probe, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.open[p.Token()] = p
	} else {
		delete(s.open, p.Token())
	}
	s.n.Store(int32(len(s.open)))
}

// take reports whether a datagram belongs to a test. Receive workers call it.
func (s *Probes) take(sub int, h fabric.Header, payload []byte) bool {
	if s.n.Load() == 0 {
		return false
	}
	s.mu.Lock()
	p := s.open[h.Token]
	s.mu.Unlock()
	if p == nil {
		return false
	}
	p.Take(sub, h, payload)
	return true
}

// probe sends datagrams of no operation, if the network has room.
func (s *sender) probe(sub int, b *fabric.Batch) {
	s.turn.Lock()
	defer s.turn.Unlock()
	n, _ := s.tx[sub].Send(b) // a rank that misses the datagrams reports it
	s.posted[sub] += uint64(n)
}
