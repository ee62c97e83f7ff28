package control

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/observer"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Multicast is the name of the algorithm of package mcast.
const Multicast = "mcast"

// Errors of Start.
var (
	ErrNoMulticast = errors.New("multicast does not work here")
	ErrCall        = errors.New("bad call")
)

// A Call is a collective that this rank takes part in. Everything but the content and the addresses of
// the buffers, Factor and Timeout is the same on all ranks.
type Call struct {
	Kind   wire.CallKind
	Algo   string
	Root   int     // of rooted collectives
	Counts []int64 // bytes by rank, where blocks may differ: as in p2p.Spec

	Receives []int64 // Alltoallv: bytes that this rank receives by rank
	Send     []byte  // this rank's contribution; nil: it is in Recv already
	Recv     []byte  // the receive buffer; Broadcast: the buffer

	Type   reduce.Type // reductions
	Op     reduce.Op
	Factor float64 // reduce.PremulSum: factor of this rank's input

	Chains, Subgroups, Chunk int     // mcast; 0: the default, which is all for Subgroups
	Racks                    bool    // mcast: one chain per rack, for callers that know racks
	Groups                   [][]int // mcast: the chains, if set
	Radix                    int
	Segment                  int64

	Timeout time.Duration // limit of the call's time on this rank, from Start on; 0: none but Config.Deadline

	Finish func() error // called when the data is in place, before the request ends; nil: nothing
	Uses   [][]byte     // memory of the caller that Finish uses
}

// call is a Call that was prepared.
type call struct {
	req    Request
	info   observer.Call
	bufs   datapath.Buffers
	rounds []*mcast.Geometry // nil: it does not multicast
	id     uint64            // of the node's request
	whole  bool              // the node's request is complete
	mail   *Message          // nil: a collective
	finish func() error      // what is left to do when the data is in place; nil: nothing

	deadline step.Time // step.Never: none but Config.Deadline

	reduction *inc.Reduction // by aggregators, before rounds; nil: none
}

// Start begins a call. Calls on a communicator begin in the same order on all ranks. After an error
// nothing has begun on this rank.
func (c *Control) Start(comm uint32, spec Call) (*Request, error) {
	g := c.comms.group(comm)
	if g == nil {
		return nil, fmt.Errorf("%w: %d", node.ErrComm, comm)
	}
	if err := spec.check(g.Rank, len(g.Members)); err != nil {
		return nil, err
	}
	k := &call{
		info: observer.Call{
			Comm: comm, Kind: spec.Kind, Algo: spec.Algo, Bytes: spec.bytes(), Lifecycle: comm == Lifecycle,
		},
		bufs: datapath.Buffers{
			Group: &g.Group, Send: spec.Send, Recv: spec.Recv, Reduces: spec.Kind.Reduces(), Type: spec.Type, Op: spec.Op,
		},
		deadline: c.deadlineIn(spec.Timeout),
	}
	c.data.Memory.Use(&k.bufs, spec.Uses...) // before anybody touches them
	if err := c.prepare(k, &spec, g); err != nil {
		c.data.Memory.Unuse(&k.bufs)
		return nil, err
	}
	return c.enqueue(k)
}

// deadlineIn returns the deadline of a call that starts now. A timeout of 0 is none.
func (c *Control) deadlineIn(timeout time.Duration) step.Time {
	if timeout <= 0 || step.Time(timeout) > step.Never-c.now() {
		return step.Never
	}
	return c.now() + step.Time(timeout)
}

// enqueue hands a prepared call to the loop.
func (c *Control) enqueue(k *call) (*Request, error) {
	k.req.c, k.req.call = c, k
	t := c.newTask(taskCall)
	t.Value.call = k
	c.comms.mu.Lock()
	if !c.is(running) {
		c.comms.mu.Unlock()
		c.data.Drop(&k.bufs)
		c.data.Memory.Unuse(&k.bufs)
		return nil, ErrClosed // the loop would not look at it any more
	}
	c.tasks.Push(t)
	c.comms.mu.Unlock()
	c.work()
	return &k.req, nil
}

// prepare finds the plan of a call, and copies this rank's contribution to where it belongs.
func (c *Control) prepare(k *call, spec *Call, g *group) error {
	rank, size := g.Rank, len(g.Members)
	m := g.plans.find(spec)
	if m == nil {
		m = newPlan(spec)
		var err error
		switch spec.Algo {
		case Multicast:
			err = c.planMulticast(m, size, c.eagerChunks())
		case Inc:
			err = c.planInc(m, g)
		default:
			err = m.planP2P(rank, size)
		}
		if err != nil {
			return err
		}
		g.plans.keep(m)
	}
	k.rounds, k.bufs.Plan, k.req.info, k.reduction = m.rounds, m.p2p, m.info, m.reduction
	if spec.Kind.Reduces() && spec.Op == reduce.PremulSum {
		if err := c.scale(k, spec); err != nil {
			return err
		}
	}
	switch spec.Kind {
	case wire.Allgather:
		at := sum(spec.Counts[:rank])
		copyTo(spec.Recv[at:at+spec.Counts[rank]], spec.Send)
	case wire.ReduceScatter:
		k.bufs.Own = sum(spec.Counts[:rank])
	case wire.Alltoall, wire.Alltoallv:
		// Every block is overwritten while others are still to be sent.
		if spec.Send == nil {
			k.bufs.Send = bytes.Clone(spec.Recv)
		} else if datapath.Address(spec.Send) == datapath.Address(spec.Recv) {
			k.bufs.Send = bytes.Clone(spec.Send) // it may be longer than the receive buffer
		}
	}
	k.finish = spec.Finish
	if spec.Kind.Reduces() && reduce.Finishes(spec.Type, spec.Op, size) {
		k.finish = k.divide
	}
	if size == 1 && spec.Kind.Reduces() {
		copyTo(spec.Recv, k.bufs.Send)
	}
	if p := m.p2p; p != nil && k.bufs.Send != nil && spec.Recv != nil {
		for _, o := range p.Before {
			if at := o.To - p.Input; at < p.Output { // the datapath fills scratch memory
				copyTo(spec.Recv[at:at+o.Len], k.bufs.Send[o.From:o.From+o.Len])
			}
		}
	}
	receives := spec.Kind != wire.Broadcast || spec.Root != rank
	// The kernel does not place the chunks of small operations: they are eager as a rule.
	c.data.Prepare(&k.bufs, k.rounds != nil && size > 1 && receives && !k.rounds[0].Eager())
	return nil
}

// scale multiplies the input of a reduction by the factor of this rank. It leaves the send buffer alone.
func (c *Control) scale(k *call, spec *Call) error {
	from, to := spec.Send, spec.Recv
	if spec.Send == nil {
		from = spec.Recv // in place
	} else {
		to = c.data.Scratch(&k.bufs, len(spec.Send))
		k.bufs.Send = to
	}
	return reduce.Scale(to, from, spec.Type, spec.Factor)
}

// unused is the size of a buffer that a rank does not use.
const unused = -1

// sizes returns the sizes of the send buffer and of the receive buffer of a rank, and whether one of them
// may be missing because the rank works in place.
func (k *Call) sizes(rank int) (send, recv int64, inPlace bool) {
	isRoot := rank == k.Root
	atRoot := func(n int64) int64 {
		if isRoot {
			return n
		}
		return unused
	}
	switch k.Kind {
	case wire.Broadcast:
		return unused, int64(len(k.Recv)), false
	case wire.Allgather:
		return k.Counts[rank], sum(k.Counts), true
	case wire.ReduceScatter:
		return sum(k.Counts), k.Counts[rank], false
	case wire.Allreduce:
		return int64(len(k.Recv)), int64(len(k.Recv)), true
	case wire.Reduce:
		return k.vector(), atRoot(k.vector()), isRoot
	case wire.Gather, wire.Gatherv:
		return k.Counts[rank], atRoot(sum(k.Counts)), isRoot
	case wire.Scatter, wire.Scatterv:
		return atRoot(sum(k.Counts)), k.Counts[rank], isRoot
	case wire.Alltoall, wire.Alltoallv:
		return sum(k.Counts), sum(k.Receives), slices.Equal(k.Counts, k.Receives)
	}
	return unused, unused, false
}

// check reports what is wrong with a call. It forgets buffers that the rank does not use.
func (k *Call) check(rank, size int) error {
	if !k.Kind.Collective() {
		return fmt.Errorf("%w: unknown kind %v", ErrCall, k.Kind)
	}
	if k.Kind.Rooted() && (k.Root < 0 || k.Root >= size) {
		return fmt.Errorf("%w: root %d: must be 0 to %d", ErrCall, k.Root, size-1)
	}
	if !k.Kind.Blocks() {
		k.Counts = nil
	}
	if k.Kind != wire.Alltoallv {
		k.Receives = k.Counts // the same both ways
	}
	for _, counts := range [][]int64{k.Counts, k.Receives} {
		if k.Kind.Blocks() && len(counts) != size {
			return fmt.Errorf("%w: %d counts for %d ranks", ErrCall, len(counts), size)
		}
		var total int64
		for r, c := range counts {
			if c < 0 || total+c < total {
				return fmt.Errorf("%w: count of rank %d is %d", ErrCall, r, c)
			}
			total += c
		}
	}
	if k.Kind.Blocks() && k.Counts[rank] != k.Receives[rank] {
		return fmt.Errorf("%w: this rank sends %d bytes to itself, but receives %d",
			ErrCall, k.Counts[rank], k.Receives[rank])
	}
	if err := k.checkSizes(rank); err != nil || !k.Kind.Reduces() {
		return err
	}
	// A reduction needs whole elements and a known operator.
	if err := reduce.Into(nil, nil, k.Type, k.Op); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	for _, c := range append([]int64{int64(len(k.Recv)), int64(len(k.Send))}, k.Counts...) {
		if c%int64(k.Type.Size()) != 0 {
			return fmt.Errorf("%w: %d bytes are not a whole number of %v", ErrCall, c, k.Type)
		}
	}
	return nil
}

// checkSizes checks the buffers of a call against its sizes.
func (k *Call) checkSizes(rank int) error {
	send, recv, inPlace := k.sizes(rank)
	switch {
	case recv == unused:
		k.Recv = nil
	case int64(len(k.Recv)) == recv:
	case k.Recv == nil && inPlace && (k.Kind == wire.Scatter || k.Kind == wire.Scatterv):
	default:
		return fmt.Errorf("%w: receive buffer of %d bytes for %d", ErrCall, len(k.Recv), recv)
	}
	switch {
	case send == unused:
		k.Send = nil
	case int64(len(k.Send)) == send:
	case k.Send == nil && inPlace && k.Kind != wire.Scatter && k.Kind != wire.Scatterv:
	default:
		return fmt.Errorf("%w: send buffer of %d bytes for %d", ErrCall, len(k.Send), send)
	}
	return k.checkOverlap(rank)
}

// checkOverlap refuses a call whose result would overwrite input that is still needed. The receive buffer
// may be in the place where this rank's own block is.
func (k *Call) checkOverlap(rank int) error {
	if len(k.Send) == 0 || len(k.Recv) == 0 {
		return nil
	}
	send, recv := datapath.Address(k.Send), datapath.Address(k.Recv)
	at := recv // where the send buffer may begin
	switch k.Kind {
	case wire.ReduceScatter, wire.Scatter, wire.Scatterv:
		at -= uintptr(sum(k.Counts[:rank]))
	case wire.Allgather, wire.Gather, wire.Gatherv:
		return nil // the send buffer is copied before anything else, and not needed after that
	}
	if send != at && recv < send+uintptr(len(k.Send)) && send < recv+uintptr(len(k.Recv)) {
		return fmt.Errorf("%w: the send buffer and the receive buffer overlap, and are not in place", ErrCall)
	}
	return nil
}

// bytes is the size of the call, over all ranks where they differ.
func (k *Call) bytes() int64 {
	if len(k.Counts) > 0 {
		return sum(k.Counts)
	}
	return k.vector()
}

// vector is the size of the buffer that a Broadcast sends or a reduction combines.
func (k *Call) vector() int64 {
	if k.Kind == wire.Reduce {
		return int64(max(len(k.Send), len(k.Recv)))
	}
	return int64(len(k.Recv))
}

// divide turns sums into averages, and truth values into 0 or 1.
func (k *call) divide() error {
	return reduce.Finish(k.bufs.Recv, k.bufs.Type, k.bufs.Op, len(k.bufs.Group.Members))
}

// copyTo copies src to dst unless both are the same memory.
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
