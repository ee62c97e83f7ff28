package datapath

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/reduce"
)

// PortTraffic counts the datagrams between this rank and the aggregators, as their network saw them.
type PortTraffic struct {
	Sent, SentBytes uint64 // contributions, headers included
	Unsent          uint64 // contributions that the network did not take: it had no room, or there was no aggregator
	Dropped         uint64 // sums that a full receive queue dropped here
}

// aggregation is the part of the datapath that works with aggregators. It has two goroutines: one sends contributions
// straight from the users' buffers, because the network may have no room, and one adds this rank's contribution to the
// sums that arrive. A goroutine that polls the network also takes sums.
type aggregation struct {
	d    *Datapath
	port fabric.Aggregators
	tree *inc.Tree

	cmds     *queue.Queue[command]
	stop     chan struct{}
	headers  []inc.Header // of the batch to send
	payloads [][]byte

	mu  sync.Mutex // guards changes of ops
	ops atomic.Pointer[map[uint64]*Operation]

	// Owned by the goroutine that takes sums. At most one does at a time.
	unreported *Operation // operation with sums that control does not know of
	sums       int        // number of these sums

	count incCounters
}

// incCounters count the work of an aggregation.
type incCounters struct{ sums, duplicates, late, stale, foreign, fetched atomic.Uint64 }

// maxContributions limits the datagrams of one Send, and maxSums the sums between two reports to control: owners
// grant credit while sums keep coming.
const (
	maxContributions = 64
	maxSums          = 32
)

// reducing is the data of an operation whose sums aggregators make.
type reducing struct {
	token  uint64
	number uint32
	layout *inc.Layout
	record *place.Map // chunks of this rank's block
	input  []byte     // contributions of this rank to all blocks
	result []byte     // this rank's block of the result
	at     int64      // start of this rank's block in input
	parts  []*part    // fetched inputs that are under way; owned by control's goroutine
}

func (d *Datapath) startAggregation() {
	if d.cfg.Aggregators == nil {
		return
	}
	a := &aggregation{
		d: d, port: d.cfg.Aggregators, tree: d.cfg.Tree, cmds: queue.New[command](), stop: make(chan struct{}),
	}
	a.ops.Store(&map[uint64]*Operation{})
	d.inc, d.Polling.inc = a, a
	d.workers.Add(2)
	go a.run()
	go func() {
		defer d.workers.Done()
		_ = a.port.Receive(a.take, a.report) // until Close
	}()
}

// close ends the goroutines. All operations have ended.
func (a *aggregation) close() {
	if a != nil {
		close(a.stop)
		_ = a.port.Close()
	}
}

// open prepares the data of a reduction. Sums may arrive from now on.
func (a *aggregation) open(op *Operation, r *Round) {
	b, k := op.bufs, r.Reduction
	in := &reducing{
		token: a.port.Token(op.Key.Comm, r.Number), number: r.Number, layout: r.Layout, record: r.Record,
		input: b.Recv, result: b.Recv,
	}
	if b.Send != nil { // otherwise in place
		in.input = b.Send
	}
	for _, n := range k.Counts[:k.Rank] {
		in.at += n
	}
	if len(b.Recv) > int(k.Counts[k.Rank]) { // Allreduce
		in.result = b.Recv[in.at : in.at+k.Counts[k.Rank]]
	}
	op.reducing = in
	a.change(func(ops map[uint64]*Operation) { ops[in.token] = op })
}

// forget ends the receiving for an operation.
func (a *aggregation) forget(op *Operation) {
	a.change(func(ops map[uint64]*Operation) { delete(ops, op.reducing.token) })
}

// change replaces the table of operations, which the receiving goroutine reads without a lock.
func (a *aggregation) change(f func(map[uint64]*Operation)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ops := maps.Clone(*a.ops.Load())
	f(ops)
	a.ops.Store(&ops)
}

// Contribute sends this rank's contributions to n places from the given one on, or only offers them. Sent reports the
// end.
func (op *Operation) Contribute(from, n uint32, try uint8, offer bool) {
	op.sending++
	op.d.inc.command(command{kind: commandContribute, op: op, psn: from, n: n, total: n, try: try, offer: offer})
}

func (a *aggregation) command(c command) {
	t := a.cmds.Item()
	t.Value = c
	a.cmds.Push(t)
}

// run sends contributions.
func (a *aggregation) run() {
	defer a.d.workers.Done()
	a.d.pin()
	for {
		for t := a.cmds.Take(); t != nil; t = a.cmds.Free(t) {
			c := &t.Value
			kind := Sent
			switch c.kind {
			case commandContribute:
				a.contribute(c)
			case commandQuiesce:
				kind = quiet
			default:
				panic("datapath: unknown command for the sender of contributions")
			}
			a.d.sink.Report(Event{Kind: kind, Op: c.op, N: c.total})
		}
		if !a.cmds.Sleep() {
			continue
		}
		select {
		case <-a.cmds.Wake():
		case <-a.stop:
			return
		}
	}
}

// contribute sends the contributions of a command, less this rank's own block. A payload that is shorter than the first
// one ends its batch. An offer has no payload.
func (a *aggregation) contribute(c *command) {
	op, in := c.op, c.op.reducing
	g, kind := op.bufs.Group, inc.Contribution
	if c.offer {
		kind = inc.Offer
	}
	for c.n > 0 && !op.cancelled.Load() {
		a.headers, a.payloads = a.headers[:0], a.payloads[:0]
		for c.n > 0 && len(a.headers) < maxContributions {
			owner, _, off, length := in.layout.At(c.psn)
			if c.offer {
				length = 0
			}
			if len(a.payloads) > 0 && owner != g.Rank && int(length) > len(a.payloads[0]) {
				break
			}
			c.psn, c.n = c.psn+1, c.n-1
			if owner == g.Rank {
				continue
			}
			a.headers = append(a.headers, inc.Header{
				Kind: kind, Try: c.try, Type: uint8(op.bufs.Type), Reduce: uint8(op.bufs.Op), Token: in.token,
				Comm: op.Key.Comm, Number: in.number, Place: c.psn - 1, Owner: uint16(g.Members[owner]),
			})
			a.payloads = append(a.payloads, in.input[off:off+length])
			if int(length) < len(a.payloads[0]) {
				break
			}
		}
		if len(a.headers) == 0 {
			break
		}
		_ = a.port.Send(a.headers, a.payloads) // fails only if it was closed, because this rank leaves
	}
	clear(a.payloads)
}

// take adds this rank's contribution to a sum, and places the result. Strangers can send anything to this rank, so it
// takes only what an open operation expects.
func (a *aggregation) take(h *inc.Header, payload []byte) {
	op := (*a.ops.Load())[h.Token]
	if op == nil {
		a.count.stale.Add(1)
		return
	}
	in := op.reducing
	if h.Kind == inc.Want {
		if h.Comm != op.Key.Comm || h.Number != in.number {
			a.count.foreign.Add(1)
			return
		}
		a.d.sink.Report(Event{Kind: Wanted, Op: op, N: h.Place, Try: h.Try}) // the operation checks the place
		return
	}
	nth, off, ok := a.expects(op, h, len(payload))
	switch {
	case !ok:
		a.count.foreign.Add(1)
		return
	case !op.pins.enter():
		return
	}
	defer op.unpin()
	if !in.record.Take(nth) {
		if in.record.ForRead(nth) {
			a.count.late.Add(1)
		} else {
			a.count.duplicates.Add(1)
		}
		return
	}
	a.finish(op, payload, off)
	in.record.Finish(nth, 1)
	a.count.sums.Add(1)
	if a.unreported != op {
		a.report()
		a.unreported = op
	}
	if a.sums++; a.sums >= maxSums {
		a.report()
	}
}

// expects finds the chunk of a sum. It returns its number, and its offset in the input.
func (a *aggregation) expects(op *Operation, h *inc.Header, length int) (nth uint32, off int64, ok bool) {
	in, b := op.reducing, op.bufs
	if h.Kind != inc.Result || h.Comm != op.Key.Comm || h.Number != in.number || h.Place >= in.layout.Places() ||
		h.Type != uint8(b.Type) || h.Reduce != uint8(b.Op) || int(h.Owner) != b.Group.Members[b.Group.Rank] {
		return 0, 0, false
	}
	owner, nth, off, want := in.layout.At(h.Place)
	return nth, off, owner == b.Group.Rank && int64(length) == want
}

// finish adds this rank's contribution to a sum of the others' and stores the result, which belongs at an offset of
// the input. The sum comes first, as at an aggregator. The result may replace the contribution.
func (a *aggregation) finish(op *Operation, sum []byte, off int64) {
	in := op.reducing
	a.add(op, sum, in.input[off:off+int64(len(sum))])
	copy(in.result[off-in.at:], sum)
}

func (a *aggregation) add(op *Operation, dst, src []byte) {
	// Chunks hold whole elements, and control has checked type and operator.
	if err := reduce.Into(dst, src, op.bufs.Type, op.bufs.Op); err != nil {
		panic("datapath: " + err.Error())
	}
}

// serve takes sums that wait. Go wakes the receiving goroutine late while another one polls without a pause.
func (a *aggregation) serve() bool { return a != nil && len(*a.ops.Load()) > 0 && a.port.Poll() }

// report tells control of new sums.
func (a *aggregation) report() {
	if a.unreported != nil {
		a.d.sink.Report(Event{Kind: Summed, Op: a.unreported})
		a.unreported, a.sums = nil, 0
	}
}

// counters returns the counters. Any goroutine may call it.
func (a *aggregation) counters() (c IncCounters) {
	if a == nil {
		return c
	}
	var port PortTraffic
	if f := a.d.cfg.PortTraffic; f != nil {
		port = f()
	}
	n := &a.count
	return IncCounters{
		Contributions: port.Sent, IncBytes: port.SentBytes, Unsent: port.Unsent, SumsDropped: port.Dropped,
		Sums: n.sums.Load(), SumsTwice: n.duplicates.Load(),
		SumsLate: n.late.Load(), SumsStale: n.stale.Load(), SumsForeign: n.foreign.Load(), FetchedInBytes: n.fetched.Load(),
	}
}
