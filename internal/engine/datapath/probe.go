package datapath

import (
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/probe"
	"github.com/allcast/allcast/internal/wire"
)

// Probes are the tests of communicators' multicast groups that are under way. The receive workers own
// the receivers, and hand datagrams of no operation to the tests.
type Probes struct {
	secret []byte
	send   func(stream int, b *fabric.Batch) // nil: the network has no multicast

	n    atomic.Int32                   // size of open
	open registry[uint64, *probe.Probe] // by token
}

func newProbes(secret []byte) Probes {
	return Probes{secret: secret, open: newRegistry[uint64, *probe.Probe]()}
}

// Token is the token of the datagrams that test a communicator's groups. No communicator has this name.
func (s *Probes) Token(comm uint32) uint64 { return newTokens(s.secret).of("probe", uint64(comm)) }

// Open lets a test receive datagrams until Close.
func (s *Probes) Open(p *probe.Probe) {
	s.open.add(p.Token(), p)
	s.n.Add(1)
}

// Close ends a test that is open.
func (s *Probes) Close(p *probe.Probe) {
	s.n.Add(-1)
	s.open.remove(p.Token())
}

// Start sends the datagrams of an open test until stop returns, which also closes the test.
func (s *Probes) Start(p *probe.Probe) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.Send(quit, s.send)
	}()
	return func() {
		close(quit)
		<-ended
		s.Close(p)
	}
}

// take reports whether a datagram belongs to a test. Receive workers call it.
func (s *Probes) take(stream int, h wire.Header, payload []byte) bool {
	if s.n.Load() == 0 {
		return false
	}
	p := s.open.find(h.Token)
	if p == nil {
		return false
	}
	p.Take(stream, h, payload)
	return true
}

// probe sends datagrams of no operation, if the network has room.
func (d *Datapath) probe(stream int, b *fabric.Batch) {
	s := d.sender(stream)
	s.turn.Lock()
	defer s.turn.Unlock()
	n, _ := s.tx[stream].Send(b) // a rank that misses the datagrams reports it
	s.posted[stream] += uint64(n)
}
