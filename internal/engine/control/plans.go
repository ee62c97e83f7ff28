package control

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Programs repeat the same calls, and a plan depends on nothing but the call. A communicator therefore
// keeps its last plans, unless they are large.
const (
	maxPlans  = 16
	maxPieces = 1 << 10 // of a point-to-point plan
	maxRounds = 4       // of a multicast plan
)

// soloChunk is the chunk of a rank that is alone: nothing is sent, but rounds are counted in chunks.
const soloChunk = 1 << 12

// A plan is how a call is carried out. It never changes once it is kept.
type plan struct {
	call   Call  // without buffers
	bytes  int64 // of the buffer, where there are no counts
	rounds []*mcast.Geometry
	p2p    *p2p.Plan
	info   Info

	reduction *inc.Reduction // by aggregators, before rounds; nil: none
}

// newPlan begins the plan of a call.
func newPlan(k *Call) *plan {
	m := &plan{call: *k, bytes: k.vector()}
	m.call.Send, m.call.Recv, m.call.Finish, m.call.Uses = nil, nil, nil, nil
	m.call.Counts, m.call.Receives = slices.Clone(k.Counts), slices.Clone(k.Receives) // the originals are the caller's
	m.info.Algo = k.Algo
	return m
}

// planMulticast completes the plan of a multicast call of size ranks, which may be eager up to a number of chunks.
func (c *Control) planMulticast(m *plan, size int, eager uint32) error {
	k := &m.call
	if k.Kind != wire.Broadcast && k.Kind != wire.Allgather {
		return fmt.Errorf("%w: %v has no algorithm %q: valid are %v", ErrCall, k.Kind, k.Algo, p2p.Algorithms(k.Kind))
	}
	mc := c.cfg.Multicast
	if mc == nil && size > 1 {
		return ErrNoMulticast
	}
	s := mcast.Shape{
		Kind: k.Kind, Root: k.Root, Counts: k.Counts, Chunk: k.Chunk, Chains: max(1, k.Chains),
		Subgroups: max(1, k.Subgroups), Groups: k.Groups,
	}
	if k.Kind == wire.Broadcast {
		s.Counts = make([]int64, size)
		s.Counts[k.Root] = m.bytes
	}
	if mc != nil {
		s.Subgroups, s.Streams = min(cmp.Or(k.Subgroups, mc.Subgroups()), mc.Subgroups()), mc.Streams()/mc.Subgroups()
		s.Eager = eager
		if limit := c.data.Caps().Chunk; s.Chunk <= 0 || s.Chunk > limit {
			s.Chunk = limit
		}
	}
	if s.Chunk <= 0 {
		s.Chunk = soloChunk
	}
	var err error
	if m.rounds, err = mcast.Plan(s, c.layout); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	i := &m.info
	i.Chunk, i.Chains, i.Subgroups = s.Chunk, m.rounds[0].Chains(), m.rounds[0].Subgroups()
	for _, g := range m.rounds {
		i.Chunks += g.Chunks()
	}
	return nil
}

// planP2P completes the plan of a point-to-point call on one rank.
func (m *plan) planP2P(rank, size int) error {
	k := &m.call
	s := p2p.Spec{
		Kind: k.Kind, Rank: rank, Size: size, Root: k.Root, Counts: k.Counts, Receives: k.Receives,
		Radix: k.Radix, Segment: k.Segment, Bytes: m.bytes,
	}
	if k.Kind.Reduces() {
		s.Align = int64(k.Type.Size())
		s.Type = uint64(k.Type)<<8 | uint64(k.Op) // the digest detects ranks that reduce differently
	}
	if k.Kind == wire.Barrier {
		s.Bytes = 0
	}
	var err error
	if m.p2p, err = p2p.New(k.Algo, s); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	return nil
}

// fits reports whether the plan is the plan of a call, on the same rank of the same communicator.
func (m *plan) fits(b *Call) bool {
	a := &m.call
	return a.Kind == b.Kind && m.bytes == b.vector() && a.Root == b.Root && a.Algo == b.Algo &&
		a.Type == b.Type && a.Op == b.Op && a.Chains == b.Chains && a.Subgroups == b.Subgroups &&
		a.Chunk == b.Chunk && a.Radix == b.Radix && a.Segment == b.Segment &&
		a.Groups == nil && b.Groups == nil && slices.Equal(a.Counts, b.Counts) && slices.Equal(a.Receives, b.Receives)
}

// plans are the last plans of a communicator, in a ring.
type plans struct {
	mu   sync.Mutex
	list [maxPlans]*plan
	next int
}

// find returns the plan of a call; nil: it is not kept.
func (p *plans) find(k *Call) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.list { // the latest first
		if m := p.list[(p.next+maxPlans-1-i)%maxPlans]; m == nil || m.fits(k) {
			return m
		}
	}
	return nil
}

// keep keeps a plan, unless it is large or would never be found: comparing chains takes too long.
func (p *plans) keep(m *plan) {
	pieces := 0
	if m.p2p != nil {
		pieces = len(m.p2p.Sends) + len(m.p2p.Recvs)
	}
	if m.call.Groups != nil || len(m.rounds) > maxRounds || pieces > maxPieces {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list[p.next] = m
	p.next = (p.next + 1) % maxPlans
}
