package control

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/engine/observer"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/reduce"
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
// the buffers is the same on all ranks.
type Call struct {
	Kind   wire.CallKind
	Algo   string
	Root   int     // Broadcast
	Counts []int64 // Allgather, Reduce-Scatter: bytes by rank
	Send   []byte  // Allgather: this rank's block; reductions: the input; nil: it is in Recv already
	Recv   []byte  // the receive buffer; Broadcast: the buffer

	Type reduce.Type // reductions
	Op   reduce.Op

	Chains, Subgroups, Chunk int     // mcast; 0: the default
	Racks                    bool    // mcast: one chain per rack, for callers that know racks
	Groups                   [][]int // mcast: the chains, if set
	Radix                    int
	Segment                  int64
}

// call is a Call that was prepared.
type call struct {
	req    Request
	info   observer.Call
	bufs   datapath.Buffers
	rounds []*mcast.Geometry // nil: point to point
	id     uint64            // of the node's request
	whole  bool              // the node's request is complete
}

// Start begins a call. Calls on a communicator begin in the same order on all ranks. After an error
// nothing has begun on this rank.
func (c *Control) Start(comm uint32, spec Call) (*Request, error) {
	g := c.comms.group(comm)
	if g == nil {
		return nil, fmt.Errorf("%w: %d", node.ErrComm, comm)
	}
	k := &call{
		info: observer.Call{
			Comm: comm, Kind: spec.Kind, Algo: spec.Algo, Bytes: spec.bytes(), Lifecycle: comm == Lifecycle,
		},
		bufs: datapath.Buffers{
			Group: &g.Group, Send: spec.Send, Recv: spec.Recv, Reduces: spec.reduces(), Type: spec.Type, Op: spec.Op,
		},
	}
	k.req.c, k.req.call = c, k
	c.data.Memory.Use(&k.bufs) // before anybody touches them
	if err := c.prepare(k, &spec, g); err != nil {
		c.data.Memory.Unuse(&k.bufs)
		return nil, err
	}
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
	if err := spec.check(rank, size); err != nil {
		return err
	}
	m := g.plans.find(spec)
	if m == nil {
		m = newPlan(spec)
		var err error
		if spec.Algo == Multicast {
			err = c.planMulticast(m, size)
		} else {
			err = m.planP2P(rank, size)
		}
		if err != nil {
			return err
		}
		g.plans.keep(m)
	}
	k.rounds, k.bufs.Plan, k.req.info = m.rounds, m.p2p, m.info
	switch spec.Kind {
	case wire.Allgather:
		at := sum(spec.Counts[:rank])
		copyTo(spec.Recv[at:at+spec.Counts[rank]], spec.Send)
	case wire.ReduceScatter:
		k.bufs.Own = sum(spec.Counts[:rank])
	}
	if size == 1 && spec.reduces() {
		copyTo(spec.Recv, spec.Send)
	}
	receives := spec.Kind != wire.Broadcast || spec.Root != rank
	c.data.Prepare(&k.bufs, k.rounds != nil && size > 1 && receives)
	return nil
}

// check reports what is wrong with a call.
func (k *Call) check(rank, size int) error {
	n := int64(len(k.Recv))
	switch k.Kind {
	case wire.Broadcast:
		if k.Root < 0 || k.Root >= size {
			return fmt.Errorf("%w: root %d: must be 0 to %d", ErrCall, k.Root, size-1)
		}
		return nil
	case wire.Barrier:
		return nil
	case wire.Allgather, wire.ReduceScatter:
		if len(k.Counts) != size {
			return fmt.Errorf("%w: %d counts for %d ranks", ErrCall, len(k.Counts), size)
		}
		var total int64
		for r, c := range k.Counts {
			if c < 0 || total+c < total {
				return fmt.Errorf("%w: count of rank %d is %d", ErrCall, r, c)
			}
			total += c
		}
		send, recv := k.Counts[rank], total
		if k.reduces() {
			send, recv = recv, send
		}
		if n != recv {
			return fmt.Errorf("%w: receive buffer of %d bytes for %d", ErrCall, n, recv)
		}
		if (k.Send != nil || k.reduces()) && int64(len(k.Send)) != send {
			return fmt.Errorf("%w: send buffer of %d bytes for %d", ErrCall, len(k.Send), send)
		}
		if !k.reduces() {
			return nil
		}
	case wire.Allreduce:
		if k.Send != nil && len(k.Send) != len(k.Recv) {
			return fmt.Errorf("%w: send buffer of %d bytes, receive buffer of %d", ErrCall, len(k.Send), len(k.Recv))
		}
	default:
		return fmt.Errorf("%w: unknown kind %v", ErrCall, k.Kind)
	}
	// A reduction needs whole elements and a known operator.
	if err := reduce.Into(nil, nil, k.Type, k.Op); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	for _, c := range append([]int64{n}, k.Counts...) {
		if c%int64(k.Type.Size()) != 0 {
			return fmt.Errorf("%w: %d bytes are not a whole number of %v", ErrCall, c, k.Type)
		}
	}
	return k.checkOverlap(rank)
}

// checkOverlap refuses a reduction whose result would overwrite input that is still needed.
func (k *Call) checkOverlap(rank int) error {
	if len(k.Send) == 0 || len(k.Recv) == 0 {
		return nil
	}
	at := datapath.Address(k.Send)
	if k.Kind == wire.ReduceScatter {
		at += uintptr(sum(k.Counts[:rank]))
	}
	send, recv := datapath.Address(k.Send), datapath.Address(k.Recv)
	if recv != at && recv < send+uintptr(len(k.Send)) && send < recv+uintptr(len(k.Recv)) {
		return fmt.Errorf("%w: the receive buffer overlaps the send buffer, and is not this rank's block of it", ErrCall)
	}
	return nil
}

// bytes is the size of the call, over all ranks where they differ.
func (k *Call) bytes() int64 {
	if len(k.Counts) > 0 {
		return sum(k.Counts)
	}
	return int64(len(k.Recv))
}

func (k *Call) reduces() bool { return k.Kind == wire.ReduceScatter || k.Kind == wire.Allreduce }

// averages reports whether the result still needs divide.
func (k *call) averages() bool {
	return k.bufs.Reduces && reduce.Finishes(k.bufs.Type, k.bufs.Op, len(k.bufs.Group.Members))
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
