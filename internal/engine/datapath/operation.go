package datapath

import (
	"sync/atomic"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// Buffers are the memory of a call, and what happens to the data.
type Buffers struct {
	Group      *Group
	Send, Recv []byte
	Own        int64 // Reduce-Scatter: where this rank's block begins in Send
	Reduces    bool
	Type       reduce.Type // of a reduction
	Op         reduce.Op
	Plan       *p2p.Plan // nil: multicast

	mem  *[]byte     // Recv, for goroutines that may still hold it when the call ends
	area *sharedArea // where the kernel places chunks; nil: nowhere
	uses []*block    // memory of Alloc that the call uses
	own  []byte      // scratch memory of the call, to be given back
}

// Scratch returns n bytes of any content that belong to the call until Drop.
func (d *Datapath) Scratch(b *Buffers, n int) []byte {
	if n > 0 {
		b.own = d.scratch.get(n)
	}
	return b.own
}

// Prepare makes the buffers ready for rounds. With place set, the kernel may place chunks in Recv.
func (d *Datapath) Prepare(b *Buffers, place bool) {
	mem := b.Recv
	b.mem = &mem
	if p := d.caps.Placer; p != nil && place {
		if a := p.Area(b.Recv); a != nil {
			b.area = newSharedArea(a)
		}
	}
}

// Drop forgets the buffers of a call that has ended.
func (d *Datapath) Drop(b *Buffers) {
	if b.area != nil {
		b.area.leave()
		// Fetched chunks were never placed. If other calls wait for many, the next look finds them.
		d.Polling.bulk.Store(false)
	}
	if b.own != nil {
		d.scratch.put(b.own)
	}
	b.mem, b.area, b.Send, b.Recv, b.own = nil, nil, nil, nil, nil
}

// opState is the state of an Operation.
//
//	opOpen      -> opReleased   Release: it is complete
//	opOpen      -> opQuiescing  Quiesce: it failed
//	opQuiescing -> opQuiet      nothing touches its buffers any more
type opState uint8

const (
	opOpen opState = iota
	opReleased
	opQuiescing
	opQuiet
)

// An Operation is one round of a call.
type Operation struct {
	Key fabric.OpKey

	d         *Datapath
	bufs      *Buffers
	token     uint64
	geo       *mcast.Geometry        // nil: point to point
	eager     bool                   // it has no barrier and no handshake
	tag       uint32                 // upper bits of the PSNs of its datagrams
	copied    []byte                 // copy of this rank's block, at its place; nil unless it is eager and sends
	seal      *sealing               // nil: its datagrams are not sealed
	landings  []*landing             // by stream, nil where nothing is received; empty: it does not multicast
	pieces    *pieces                // nil: it multicasts
	mem       atomic.Pointer[[]byte] // the receive buffer; nil when it is the user's again
	reducing  *reducing              // nil: aggregators do not reduce its data
	cancelled atomic.Bool
	pins      pins // goroutines that place data of connections

	// Owned by control's goroutine.
	state       opState
	offloaded   bool // the kernel receives for all its streams
	registering bool // the network does not know its buffer yet
	users       int  // puts, direct reads, registrations and digests under way
	waiting     int  // answers that Quiesce waits for
	sending     int  // multicasts under way
	unwanted    bool // no rank needs copied any more
}

// A Round describes an Operation.
type Round struct {
	Key        fabric.OpKey
	Buffers    *Buffers
	Geometry   *mcast.Geometry    // multicast
	Placements []*mcast.Placement // by stream
	Eager      bool
	Inbox      *p2p.Inbox // point to point

	Reduction *inc.Reduction // by aggregators
	Layout    *inc.Layout
	Record    *place.Map // chunks of this rank's block
	Number    uint32     // of the reduction in its communicator
}

// StartRound lets the buffers of a round be written and read. The node may begin the round when the
// operation is ready; if it is not yet, a Ready event says so later.
func (d *Datapath) StartRound(r Round) *Operation {
	op := &Operation{Key: r.Key, d: d, bufs: r.Buffers, geo: r.Geometry}
	d.ops[r.Key] = op
	if r.Reduction != nil {
		d.inc.open(op, &r)
		op.register(op.reducing.input)
		return op
	}
	if r.Geometry == nil {
		op.pieces = newPieces(r.Buffers, r.Inbox, &d.scratch)
		d.transfers.add(op.Key, op)
		return op
	}
	op.mem.Store(r.Buffers.mem)
	if len(r.Buffers.Group.Members) == 1 {
		return op
	}
	if r.Eager {
		op.eager, op.tag, op.token = true, r.Geometry.Tag(), d.protect.tokens.eager(r.Buffers.Group.Name, r.Key.Seq)
		d.copyBlock(op, r.Placements[0].Own())
	} else {
		op.token = d.protect.tokens.of(r.Buffers.Group.Name, r.Key.Seq)
	}
	op.seal = d.protect.sealing(r)
	op.landings = make([]*landing, len(r.Placements))
	op.offloaded = d.caps.Placer != nil && !r.Eager
	for stream, p := range r.Placements {
		// A worker that receives nothing for the round, such as a root's, must not be told of it: no
		// datagram would ever make the worker look at its commands.
		if !p.Receives() {
			continue
		}
		w := d.recvs[d.stream(op.geo, stream)]
		l := &landing{op: op, place: p, recv: w, left: p.Len() - p.Own().N}
		p.Data = l
		op.offloaded = !r.Eager && d.offload(l) && op.offloaded
		op.landings[stream] = l
		w.landings++
		w.open(l)
	}
	if r.Eager {
		return op
	}
	op.register(*r.Buffers.mem)
	return op
}

// register lets peers read a buffer of the operation.
func (op *Operation) register(mem []byte) {
	if op.registering = !op.d.rel.Register(op.Key, mem); op.registering {
		op.users++
	}
}

// Operation returns an operation that has not ended.
func (d *Datapath) Operation(key fabric.OpKey) *Operation { return d.ops[key] }

// Ready reports whether the round may begin, and whether the kernel receives for all its streams.
func (op *Operation) Ready() (ready, offloaded bool) {
	return op.state == opOpen && !op.registering, op.offloaded
}

// Multicast sends n of this rank's chunks from psn on. Sent reports the end.
func (op *Operation) Multicast(stream int, psn, n uint32) {
	op.sending++
	to := op.d.stream(op.geo, stream)
	op.d.sender(to).command(command{
		kind: commandMulticast, op: op, stream: stream, to: to, psn: psn, n: n, total: n,
	}, op.eager)
}

// Put sends the nth range to a peer. Sent reports the end.
func (op *Operation) Put(to int, nth uint32, s *p2p.Send) {
	op.users++
	op.d.rel.Put(to, fabric.Piece{Op: op.Key, Nth: nth, Len: s.Len}, op.pieces.source(to, nth, s))
}

// Release gives the buffers of a complete operation back.
func (op *Operation) Release() {
	op.withdraw()
	op.state = opReleased
	if op.bufs.Plan != nil && op.pieces != nil {
		op.pieces.finish(op.bufs.Plan.After)
	}
	delete(op.d.ops, op.Key)
	op.dropParts()
	if op.copied != nil {
		op.d.copies[op.Key] = op
	}
	for _, l := range op.landings {
		if l != nil {
			l.recv.landings--
			l.recv.command(command{kind: commandClose, landing: l}, false)
		}
	}
	if op.pieces != nil {
		op.pieces.release()
	}
}

// Unexpected counts the pieces that came for an ended operation although nobody expected them.
func (op *Operation) Unexpected() uint64 {
	if op.pieces == nil {
		return 0
	}
	op.pieces.mu.Lock()
	defer op.pieces.mu.Unlock()
	return op.pieces.inbox.Foreign()
}

// withdraw takes the buffers away from the reliable side. The workers have their own ways.
func (op *Operation) withdraw() {
	op.mem.Store(nil)
	if op.landings != nil {
		if !op.eager {
			op.d.rel.Unregister(op.Key)
		}
		op.d.forgetReads(op)
	}
	if op.reducing != nil {
		op.d.inc.forget(op)
		op.d.rel.Unregister(op.Key)
		op.d.forgetReads(op)
	}
	if op.pieces != nil {
		op.d.transfers.remove(op.Key)
	}
}

// Quiesce makes sure that nothing touches the buffers of a failed operation any more. It reports whether
// that is so already; otherwise a Quiesced event says so later.
func (op *Operation) Quiesce() (done bool) {
	d := op.d
	op.cancelled.Store(true)
	op.withdraw()
	op.dropCopy()
	op.state = opQuiescing
	op.waiting = op.users
	if op.pins.close() {
		op.waiting++
	}
	if op.landings != nil {
		op.waiting += len(d.sends)
		for i, s := range d.sends { // each answers for a stream of its own
			s.command(command{kind: commandQuiesce, op: op, to: i}, false)
		}
		for _, l := range op.landings {
			if l != nil {
				op.waiting++
				l.recv.landings--
				l.recv.command(command{kind: commandQuiesce, landing: l}, true)
			}
		}
	}
	if op.reducing != nil {
		op.waiting++
		d.inc.command(command{kind: commandQuiesce, op: op})
	}
	if op.users > 0 {
		d.rel.Cancel(op.Key)
	}
	return op.settled()
}

// answered counts an answer that Quiesce waits for. The last one makes the event Quiesced.
func (op *Operation) answered(ev *Event) bool {
	op.waiting--
	*ev = Event{Kind: Quiesced, Op: op}
	return op.settled()
}

func (op *Operation) settled() bool {
	if op.waiting > 0 || op.state != opQuiescing {
		return false
	}
	op.state = opQuiet
	delete(op.d.ops, op.Key)
	op.dropParts()
	if op.pieces != nil {
		op.pieces.release()
	}
	return true
}

// Read fetches chunks from a peer: it asks the receive worker to claim them. ReadDone reports the end.
func (op *Operation) Read(peer, stream int, ranges []wire.Range) {
	op.d.lastRead++
	r := &read{id: op.d.lastRead, op: op, landing: op.landings[stream], peer: peer, ranges: ranges}
	r.landing.recv.command(command{kind: commandClaim, read: r}, true)
}
