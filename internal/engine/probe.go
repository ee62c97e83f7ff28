package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/probe"
)

// Where communicators have multicast groups of their own, a group may not work although the job's
// does: a switch or a subnet manager may be out of groups, or one rank could not join. So members of a
// new communicator test the groups before they use them. The receive workers own the receivers, and
// hand datagrams of no operation to the tests under way.

// probes are the tests under way.
type probes struct {
	n    atomic.Int32 // of open
	mu   sync.Mutex
	open map[uint64]*probe.Probe // by token
	out  map[uint32]bool         // communicators whose groups this rank could not join
}

func newProbes() probes {
	return probes{open: map[uint64]*probe.Probe{}, out: map[uint32]bool{}}
}

// outside notes that this rank is not in the groups of a communicator.
func (s *probes) outside(comm uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out[comm] = true
}

func (s *probes) isOutside(comm uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out[comm]
}

func (s *probes) forget(comm uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.out, comm)
}

func (s *probes) begin(p *probe.Probe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[p.Token()] = p
	s.n.Store(int32(len(s.open)))
}

func (s *probes) end(p *probe.Probe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, p.Token())
	s.n.Store(int32(len(s.open)))
}

// take reports whether a datagram is of a test. Receive workers call it.
func (s *probes) take(sub int, h fabric.Header, payload []byte) bool {
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

// OwnGroups reports whether a communicator has multicast groups of its own. It waits until this rank
// has joined them.
func (e *Engine) OwnGroups(comm uint32) bool {
	if e.caps.Groups == nil || comm < FirstComm {
		return false
	}
	var joined chan struct{}
	if !e.do(func() { joined = e.joining[comm] }) {
		return false
	}
	if joined != nil {
		select {
		case <-joined:
		case <-e.over:
			return false
		}
	}
	return true
}

// A GroupProbe is this rank's part of a test of a communicator's own multicast groups.
type GroupProbe struct {
	Unheard []int // ranks of the communicator that were not heard
	stop    func()
}

// ProbeGroups listens for the other members of a communicator on its own groups, until all were heard
// or a bounded time is over. All members have joined the groups before one of them calls it. This rank
// goes on sending until Stop, since others may not have heard it yet.
func (e *Engine) ProbeGroups(ctx context.Context, comm uint32) *GroupProbe {
	e.mu.Lock()
	g := e.comms[comm]
	e.mu.Unlock()
	if g == nil || e.send == nil {
		return &GroupProbe{stop: func() {}}
	}
	mc := e.cfg.Multicast
	token := newTokens(e.cfg.Secret).of("probe", uint64(comm)) // no communicator has this name
	p := probe.New(token, comm, g.rank, len(g.members), mc.Subgroups(), mc.Capabilities().Chunk)
	e.probes.begin(p)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.Send(stop, e.send.probe)
	}()
	limit := probe.Limit(len(g.members))
	if d := e.cfg.Deadline; d > 0 {
		limit = min(limit, d/2) // ranks that heard all wait for the others in a call
	}
	if e.probes.isOutside(comm) {
		limit = 0
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.All():
	case <-timer.C:
	case <-ctx.Done():
	case <-e.over:
	}
	return &GroupProbe{Unheard: p.Unheard(), stop: func() {
		close(stop)
		<-ended
		e.probes.end(p)
	}}
}

// Stop ends the test.
func (p *GroupProbe) Stop() { p.stop() }

// LeaveGroups makes a communicator share the job's multicast groups. All members do it, before one of
// them multicasts.
func (e *Engine) LeaveGroups(comm uint32) {
	if g := e.caps.Groups; g != nil {
		g.RemoveComm(comm)
	}
}

// probe sends a datagram of no operation, if the network has room.
func (s *sender) probe(sub int, b *fabric.Batch) {
	s.turn.Lock()
	defer s.turn.Unlock()
	n, _ := s.tx[sub].Send(b) // a rank that does not hear it will say so
	s.posted[sub] += uint64(n)
}
