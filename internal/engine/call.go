package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Multicast is the algorithm that package protocol is.
const Multicast = "mcast"

// Errors of Start.
var (
	ErrNoMulticast = errors.New("multicast does not work here")
	ErrCall        = errors.New("bad call")
)

// A Call is a collective that this rank takes part in. Everything but the
// buffers' contents and addresses is the same on all ranks.
type Call struct {
	Kind   wire.CallKind
	Algo   string
	Root   int     // Broadcast
	Counts []int64 // bytes by rank: Allgather, Reduce-Scatter
	Send   []byte  // Allgather: our block; reductions: the input. nil: it is in Recv already
	Recv   []byte  // the receive buffer; of a Broadcast the buffer

	Type reduce.Type // reductions
	Op   reduce.Op

	Chains, Subgroups, Chunk int     // mcast; 0: the default
	Racks                    bool    // mcast: a chain is the ranks of a rack, for who knows racks
	Groups                   [][]int // mcast: the chains, if set
	Radix                    int
	Segment                  int64
}

// A Request is a call under way.
type Request struct {
	e    *Engine
	call *call
	info Info
	err  error       // how it ended,
	over atomic.Bool // once it has

	mu   sync.Mutex
	done chan struct{} // nil: nobody has asked for it. Who waits needs none, as a rule
}

// Info says how a call was carried out.
type Info struct {
	Algo              string
	Chains, Subgroups int
	Chunk             int
	Chunks            uint64 // in all
}

// Done is closed when the call has ended and the buffers are the caller's again.
func (r *Request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
		if r.over.Load() {
			close(r.done)
		}
	}
	return r.done
}

// Over reports whether the call has ended: Done without a channel.
func (r *Request) Over() bool { return r.over.Load() }

// Err is how the call ended; nil before it has.
func (r *Request) Err() error {
	if !r.over.Load() {
		return nil
	}
	return r.err
}

// end is how it ends; err is set.
func (r *Request) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over.Store(true)
	if r.done != nil {
		close(r.done)
	}
}

// Info says how the call is carried out.
func (r *Request) Info() Info { return r.info }

// Cancel gives up a call that has not completed: it aborts its communicator on all ranks. It returns
// when the call has ended, so that nothing touches its buffers any more.
func (r *Request) Cancel() {
	r.e.do(func() {
		if r.e.calls[r.call.id] == r.call && !r.call.whole {
			_ = r.e.node.Cancel(r.call.comm) // it exists
			r.e.act()
		}
	})
	<-r.Done()
}

// call is a Call that was prepared.
type call struct {
	Call
	comm  uint32
	rank  int
	size  int
	req   Request
	group *group
	plan  []*mcast.Geometry
	p2p   *p2p.Plan
	mem   *[]byte     // the receive buffer
	own   int64       // Reduce-Scatter: where our block begins in the send buffer
	area  *sharedArea // where the fabric places what is received; nil: nowhere
	uses  []*block    // memory of Alloc that it uses
	id    uint64      // of the node's call
	whole bool        // the node's call has completed

	at  step.Time // when it began,
	seq uint64    // and as what, for people
}

// Start begins a call. Calls on a communicator begin in the same order on all
// ranks. After an error nothing has begun, on this rank.
func (e *Engine) Start(comm uint32, c Call) (*Request, error) {
	e.mu.Lock()
	g := e.comms[comm]
	e.mu.Unlock()
	if g == nil {
		return nil, fmt.Errorf("%w: %d", node.ErrComm, comm)
	}
	k := &call{Call: c, comm: comm, rank: g.rank, size: len(g.members), group: g}
	k.req.e, k.req.call = e, k
	k.uses = e.blocks.use(k.Send, k.Recv) // before anybody touches them
	if err := e.prepare(k); err != nil {
		e.blocks.unuse(k.uses)
		return nil, err
	}
	t := newTask(taskCall)
	t.call = k
	e.mu.Lock()
	if e.closing.Load() {
		e.mu.Unlock()
		k.area.leave()
		e.blocks.unuse(k.uses)
		return nil, ErrClosed // later, nobody would look at it
	}
	e.tasks.push(t)
	e.mu.Unlock()
	e.work()
	return &k.req, nil
}

// prepare makes the plan and puts our contribution where it belongs.
func (e *Engine) prepare(k *call) error {
	if err := k.check(); err != nil {
		return err
	}
	if err := e.plan(k); err != nil {
		return err
	}
	mem := k.Recv
	k.mem = &mem
	switch k.Kind {
	case wire.Allgather:
		at := sum(k.Counts[:k.rank])
		copyTo(k.Recv[at:at+k.Counts[k.rank]], k.Send)
	case wire.ReduceScatter:
		k.own = sum(k.Counts[:k.rank])
		if k.size == 1 {
			copyTo(k.Recv, k.Send)
		}
	case wire.Allreduce:
		if k.size == 1 {
			copyTo(k.Recv, k.Send)
		}
	}
	e.area(k)
	return nil
}

// plan finds the plan for the call, or makes it.
func (e *Engine) plan(k *call) (err error) {
	m := k.group.plans.of(k)
	if m == nil {
		m = newPlan(k)
		if k.Algo == Multicast {
			err = e.planMulticast(k, m)
		} else {
			err = k.planP2P(m)
		}
		if err != nil {
			return err
		}
		k.group.plans.keep(m)
	}
	k.plan, k.p2p, k.req.info = m.rounds, m.p2p, m.info
	return nil
}

func (k *call) check() error {
	n := int64(len(k.Recv))
	switch k.Kind {
	case wire.Broadcast:
		if k.Root < 0 || k.Root >= k.size {
			return fmt.Errorf("%w: root %d: must be 0 to %d", ErrCall, k.Root, k.size-1)
		}
		return nil
	case wire.Barrier:
		return nil
	case wire.Allgather, wire.ReduceScatter:
		if len(k.Counts) != k.size {
			return fmt.Errorf("%w: %d counts for %d ranks", ErrCall, len(k.Counts), k.size)
		}
		var total int64
		for r, c := range k.Counts {
			if c < 0 || total+c < total {
				return fmt.Errorf("%w: count of rank %d is %d", ErrCall, r, c)
			}
			total += c
		}
		own := k.Counts[k.rank]
		if k.Kind == wire.Allgather {
			if n != total {
				return fmt.Errorf("%w: receive buffer of %d bytes for %d", ErrCall, n, total)
			}
			if k.Send != nil && int64(len(k.Send)) != own {
				return fmt.Errorf("%w: send buffer of %d bytes for %d", ErrCall, len(k.Send), own)
			}
			return nil
		}
		if n != own {
			return fmt.Errorf("%w: receive buffer of %d bytes for %d", ErrCall, n, own)
		}
		if int64(len(k.Send)) != total {
			return fmt.Errorf("%w: send buffer of %d bytes for %d", ErrCall, len(k.Send), total)
		}
	case wire.Allreduce:
		if k.Send != nil && len(k.Send) != len(k.Recv) {
			return fmt.Errorf("%w: send buffer of %d bytes, receive buffer of %d", ErrCall, len(k.Send), len(k.Recv))
		}
	default:
		return fmt.Errorf("%w: unknown kind %v", ErrCall, k.Kind)
	}
	// A reduction: of whole elements, and one that there is.
	if err := reduce.Into(nil, nil, k.Type, k.Op); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	for _, c := range append([]int64{n}, k.Counts...) {
		if c%int64(k.Type.Size()) != 0 {
			return fmt.Errorf("%w: %d bytes are not a whole number of %v", ErrCall, c, k.Type)
		}
	}
	return k.checkOverlap()
}

// checkOverlap refuses a reduction whose result would be written over input that is still needed.
func (k *call) checkOverlap() error {
	if len(k.Send) == 0 || len(k.Recv) == 0 {
		return nil
	}
	at := address(k.Send)
	if k.Kind == wire.ReduceScatter {
		at += uintptr(sum(k.Counts[:k.rank]))
	}
	recv := address(k.Recv)
	if recv != at && recv < address(k.Send)+uintptr(len(k.Send)) && address(k.Send) < recv+uintptr(len(k.Recv)) {
		return fmt.Errorf("%w: the receive buffer overlaps the send buffer, and is not our block of it", ErrCall)
	}
	return nil
}

func (e *Engine) planMulticast(k *call, m *plan) error {
	if k.Kind != wire.Broadcast && k.Kind != wire.Allgather {
		return fmt.Errorf("%w: %v has no algorithm %q: valid are %v", ErrCall, k.Kind, k.Algo, p2p.Algorithms(k.Kind))
	}
	mc := e.cfg.Multicast
	if mc == nil && k.size > 1 {
		return ErrNoMulticast
	}
	s := mcast.Shape{Kind: k.Kind, Root: k.Root, Counts: m.call.Counts, Chunk: k.Chunk, Chains: max(1, k.Chains), Subgroups: max(1, k.Subgroups), Groups: k.Groups}
	if k.Kind == wire.Broadcast {
		s.Counts = make([]int64, k.size)
		s.Counts[k.Root] = int64(len(k.Recv))
	}
	if mc != nil {
		s.Subgroups = min(s.Subgroups, mc.Subgroups())
		if s.Chunk <= 0 || s.Chunk > e.caps.Chunk {
			s.Chunk = e.caps.Chunk
		}
	}
	if s.Chunk <= 0 {
		s.Chunk = 1 << 12 // alone: nothing is sent, but rounds are counted in chunks
	}
	var err error
	if m.rounds, err = mcast.Plan(s, e.layout); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	i := &m.info
	i.Chunk, i.Chains, i.Subgroups = s.Chunk, m.rounds[0].Chains(), m.rounds[0].Subgroups()
	for _, g := range m.rounds {
		i.Chunks += g.Chunks()
	}
	return nil
}

func (k *call) planP2P(m *plan) error {
	s := p2p.Spec{
		Kind: k.Kind, Rank: k.rank, Size: k.size, Root: k.Root, Counts: m.call.Counts, Radix: k.Radix, Segment: k.Segment,
		Bytes: int64(len(k.Recv)),
	}
	if k.reduces() {
		s.Align = int64(k.Type.Size())
		s.Type = uint64(k.Type)<<8 | uint64(k.Op) // ranks that mean different numbers must find out
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

func (k *call) reduces() bool {
	return k.Kind == wire.ReduceScatter || k.Kind == wire.Allreduce
}

// finishes reports whether the result still has to be made what the caller wants.
func (k *call) finishes() bool { return k.reduces() && k.Op == reduce.Avg }

// finish makes it so.
func (k *call) finish() error { return reduce.Finish(k.Recv, k.Type, k.Op, k.size) }

// copyTo copies src to dst unless it is there.
func copyTo(dst, src []byte) {
	if len(src) > 0 && unsafe.SliceData(dst) != unsafe.SliceData(src) {
		copy(dst, src)
	}
}

func sum(n []int64) (s int64) {
	for _, c := range n {
		s += c
	}
	return s
}
