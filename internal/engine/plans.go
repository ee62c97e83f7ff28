package engine

import (
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
)

// Programs make the same calls again and again, and a plan depends on nothing but the
// call. So a communicator remembers the last ones, unless they are large.
const (
	maxPlans  = 16
	maxPieces = 1 << 10 // of a point-to-point plan
	maxRounds = 4       // of a multicast one
)

// A plan is how a call is carried out. Nobody changes it.
type plan struct {
	call   Call // what it is for, without buffers
	bytes  int  // of the receive buffer
	rounds []*mcast.Geometry
	p2p    *p2p.Plan
	info   Info
}

// plans are the last ones of a communicator, in a ring.
type plans struct {
	mu   sync.Mutex
	list [maxPlans]*plan
	next int
}

// of returns the plan for a call, if it is remembered.
func (p *plans) of(k *call) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.list {
		// The last one first.
		if m := p.list[(p.next+maxPlans-1-i)%maxPlans]; m == nil || m.fits(k) {
			return m
		}
	}
	return nil
}

// keep remembers a plan, unless it would never be found: to compare chains takes too long.
func (p *plans) keep(m *plan) {
	if m.call.Groups != nil || len(m.rounds) > maxRounds || m.p2p != nil && len(m.p2p.Sends)+len(m.p2p.Recvs) > maxPieces {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list[p.next] = m
	p.next = (p.next + 1) % maxPlans
}

// newPlan begins the plan for a call.
func newPlan(k *call) *plan {
	m := &plan{call: k.Call, bytes: len(k.Recv)}
	m.call.Send, m.call.Recv = nil, nil
	m.call.Counts = slices.Clone(k.Counts) // the caller's
	m.info.Algo = k.Algo
	return m
}

// fits reports whether the plan is that of a call, on the same rank of the same
// communicator.
func (m *plan) fits(k *call) bool {
	a, b := &m.call, &k.Call
	return a.Kind == b.Kind && m.bytes == len(b.Recv) && a.Root == b.Root && a.Algo == b.Algo && a.Type == b.Type && a.Op == b.Op &&
		a.Chains == b.Chains && a.Subgroups == b.Subgroups && a.Chunk == b.Chunk && a.Radix == b.Radix && a.Segment == b.Segment &&
		a.Groups == nil && b.Groups == nil && slices.Equal(a.Counts, b.Counts)
}
