package inc

import (
	"cmp"
	"math"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Aggregation is the state of this rank's aggregators. The driver updates it.
type Aggregation struct {
	Window uint32 // of a communicator; 0: the aggregators cannot be used
	Why    string // reason why not
}

// RetryAfter is the time after which a communicator that fell back tries its aggregators again. It doubles with each
// try that fails, up to MaxRetryAfter.
const (
	RetryAfter    = 5 * step.Second
	MaxRetryAfter = 60 * step.Second
)

// Limits bound the patience of an Op.
type Limits struct {
	Tries  int       // requests for a chunk before its owner fetches it, at most 255; 0 for DefaultTries
	Silent step.Time // time without any sum after which the aggregators count as failed; 0 for DefaultSilent
}

// Limits that are not set. A stopped rank must not be taken for a failed aggregator, so the time is not short.
const (
	DefaultTries  = 4
	DefaultSilent = step.Second
)

// A Config describes an Op.
type Config struct {
	Reduction *Reduction
	Comm      uint32
	Seq       uint64
	Window    uint32           // of this rank; 0: its aggregators cannot be used
	Alpha     func() step.Time // time of a message and its answer, with a margin
	Limits    Limits
	Pace      step.Time // expected time per place before the first sums, in 1/256 ns; 0 if unknown
	Answers   Answers   // what earlier operations learned
	Batch     uint32    // largest number of places of one ActReduce
}

// An Op runs a Reduction on one rank.
type Op struct {
	cfg    Config
	red    *Reduction
	layout *Layout
	record *place.Map
	digest uint64
	chunks uint32 // of this rank's block that the Op must obtain
	total  uint32 // places

	// The control tree of the communicator.
	parent   int
	children []int

	phase step.Phase
	times step.Times
	stats step.Stats
	timer step.Time

	// The barrier. Of each subtree, the top counts once.
	ready      []bool // children whose subtree is ready
	reported   bool   // whether the parent knows that this subtree is ready
	window     uint32 // smallest of the subtree, and of all ranks after the barrier
	lost       bool   // whether this rank's aggregators failed after it had reported them
	aggregated bool   // whether aggregators make the sums
	fellBack   bool
	early      []earlyMsg
	noticed    int // rank that found the aggregators to have failed; -1 for none

	send   sender
	credit credit
	repair repair

	// The final handshake.
	finished []bool // children whose subtree has everything
	informed bool   // whether the parent knows that this subtree has everything
	allHave  bool   // whether all ranks have everything
}

// New returns an Op that waits for EvStart. The Reduction must pass Check.
func New(cfg Config) *Op {
	r := cfg.Reduction
	cfg.Batch = max(1, cfg.Batch)
	cfg.Limits.Tries = min(cmp.Or(max(0, cfg.Limits.Tries), DefaultTries), math.MaxUint8)
	cfg.Limits.Silent = cmp.Or(max(0, cfg.Limits.Silent), DefaultSilent)
	l := NewLayout(r.Counts, r.Chunk)
	o := &Op{
		cfg: cfg, red: r, layout: l, record: place.New(l.Chunks(r.Rank)), digest: r.digest(),
		chunks: l.Chunks(r.Rank), total: l.Places(),
		parent: mcast.TreeParent(r.Rank, r.Size), children: mcast.AppendTreeChildren(nil, r.Rank, r.Size),
		timer: step.Never, window: cfg.Window, noticed: -1,
	}
	o.repair.Answers = cfg.Answers
	if r.Size == 1 {
		o.chunks = 0 // there is nothing to add
	}
	o.ready, o.finished = make([]bool, len(o.children)), make([]bool, len(o.children))
	o.credit.child = make([]uint32, len(o.children))
	return o
}

// Layout returns the order of the chunks.
func (o *Op) Layout() *Layout { return o.layout }

// Record returns the record of the chunks of this rank's block. The driver takes a chunk, adds the sum and this
// rank's contribution, and finishes it. A second copy of a sum finds its chunk taken. With one rank there are no
// sums, and the driver only copies the block.
func (o *Op) Record() *place.Map { return o.record }

// Step handles an event and appends the resulting actions to out.
func (o *Op) Step(now step.Time, ev step.Event, out []step.Action) []step.Action {
	if o.mismatched(&ev) {
		return append(out, step.Action{Kind: step.ActMismatch, To: ev.From, Msg: *ev.Msg})
	}
	if o.phase >= step.Closed {
		return out
	}
	o.watchSilence(now)
	switch ev.Kind {
	case step.EvStart:
		if o.phase == step.Queued {
			o.phase, o.times.Start = step.Barrier, now
			out = o.greet(out)
		}
	case step.EvMsg:
		out = o.receive(now, ev.From, ev.Msg, out)
	case step.EvSent:
		o.send.inFlight -= min(ev.N, o.send.inFlight)
	case step.EvFetched:
		o.recordFetched(now, ev.Ranges)
	}
	return o.settle(now, out)
}

// Summed reports that chunks of this rank's block were placed by datagrams.
func (o *Op) Summed(now step.Time, out []step.Action) []step.Action {
	if !o.running() {
		return out
	}
	o.watchSilence(now)
	o.recordSums(now)
	return o.settle(now, out)
}

// Lost reports that the aggregators of this rank can no longer be used.
func (o *Op) Lost(now step.Time, out []step.Action) []step.Action {
	switch {
	case o.phase >= step.Closed:
		return out
	case o.running():
		out = o.fallBack(now, o.red.Rank, -1, out)
	case !o.reported:
		o.window = 0
	default:
		o.lost = true
	}
	return o.settle(now, out)
}

// Narrow reports that the aggregators have a smaller window. It returns false if it is too late for that: other ranks
// know the old one.
func (o *Op) Narrow(window uint32) bool {
	if o.reported || o.phase > step.Barrier {
		return false
	}
	o.window = min(o.window, window)
	return true
}

// mismatched reports whether a greeting announces a different call. It also applies to a completed
// operation, because the other rank would otherwise wait for ever.
func (o *Op) mismatched(ev *step.Event) bool {
	return ev.Kind == step.EvMsg && ev.Msg.Kind == wire.MsgReady && ev.Msg.Digest != o.digest && o.phase != step.Failed
}

// running reports whether the barrier has ended and the Op has not.
func (o *Op) running() bool { return o.phase > step.Barrier && o.phase < step.Closed }

// receive handles a message. Messages that this rank does not expect from the sender are ignored.
func (o *Op) receive(now step.Time, from int, m *wire.Msg, out []step.Action) []step.Action {
	child := slices.Index(o.children, from)
	switch {
	case m.Kind == wire.MsgReady && child >= 0 && !o.ready[child]:
		o.ready[child] = true
		o.window = uint32(min(uint64(o.window), m.Grant))
	case m.Kind == wire.MsgReady:
	case m.Kind == wire.MsgIncGo && (from == o.parent || from == 0) && o.phase == step.Barrier && o.reported:
		out = o.receiveEarly(now, o.begin(now, uint32(min(m.Grant, uint64(o.window))), out))
	case child < 0 && from != o.parent:
	case o.phase == step.Barrier && o.reported && m.Kind == wire.MsgIncAsk:
		out = o.flood(*m, from, out) // this rank has sent nothing that it could send again
	case o.phase == step.Barrier && o.reported:
		o.keepEarly(from, m)
	case !o.running():
	case m.Kind == wire.MsgGrantUp && child >= 0:
		o.credit.child[child] = max(o.credit.child[child], uint32(min(m.Grant, uint64(o.total))))
	case m.Kind == wire.MsgGrant && from == o.parent:
		out = o.acceptGrant(now, uint32(min(m.Grant, uint64(o.total))), out)
	case m.Kind == wire.MsgIncAsk:
		out = o.flood(*m, from, out)
		o.repair.heard = true
		o.answer(m)
	case m.Kind == wire.MsgIncDown:
		out = o.fallBack(now, int(m.Rank), from, out)
	case m.Kind == wire.MsgSentUp && child >= 0:
		o.finished[child] = true
	case m.Kind == wire.MsgAllSent && from == o.parent && o.informed && !o.allHave:
		out = o.endAll(out)
	}
	return out
}

// settle does everything that is possible now, and computes the next timer.
func (o *Op) settle(now step.Time, out []step.Action) []step.Action {
	out = o.enter(now, out)
	if !o.running() {
		return out
	}
	o.recordPlaced(now)
	out = o.detectLoss(now, out)
	out = o.grant(now, out)
	out = o.pumpFetches(now, out)
	out = o.finish(now, o.pump(out))
	o.timer = o.nextTimer(now)
	return out
}

// greet shows the call to the children. A child that made another call, or has closed the communicator, answers. Nobody
// else sends it a message in the barrier.
func (o *Op) greet(out []step.Action) []step.Action {
	for _, c := range o.children {
		out = o.message(c, wire.Msg{Kind: wire.MsgReady, Digest: o.digest, Call: o.red.Call()}, out)
	}
	return out
}

// enter reports that this rank's subtree is ready. The top begins.
func (o *Op) enter(now step.Time, out []step.Action) []step.Action {
	if o.phase != step.Barrier || o.reported || slices.Contains(o.ready, false) {
		return out
	}
	o.reported = true
	if o.parent < 0 {
		return o.begin(now, o.window, out)
	}
	return o.message(o.parent, wire.Msg{
		Kind: wire.MsgReady, Digest: o.digest, Call: o.red.Call(), Grant: uint64(o.window),
	}, out)
}

// begin ends the barrier. All ranks are ready.
func (o *Op) begin(now step.Time, window uint32, out []step.Action) []step.Action {
	out = o.spreadGo(wire.Msg{Kind: wire.MsgIncGo, Grant: uint64(window)}, out)
	o.phase, o.times.Barrier, o.window = step.Transfer, now, window
	needed := o.total > 0 && o.red.Size > 1
	if window == 0 {
		o.fellBack = needed
		o.startFetching(now)
		return out
	}
	o.aggregated = needed
	o.startCredit(now)
	o.repair.start(now)
	o.recordSums(now) // of ranks that began earlier
	if o.lost {
		out = o.fallBack(now, o.red.Rank, -1, out)
	}
	return out
}

// An earlyMsg is a message of a neighbour that began before this rank.
type earlyMsg struct {
	from int
	msg  wire.Msg
}

// maxEarly limits early messages. Without this rank's contributions there are no sums, so a correct neighbour sends
// only what ranks with an empty block grant and report, and that the aggregators have failed.
const maxEarly = 256

func (o *Op) keepEarly(from int, m *wire.Msg) {
	if len(o.early) < maxEarly {
		o.early = append(o.early, earlyMsg{from, *m})
		o.early[len(o.early)-1].msg.Ranges = slices.Clone(m.Ranges)
	}
}

// receiveEarly handles the messages of neighbours that began before this rank.
func (o *Op) receiveEarly(now step.Time, out []step.Action) []step.Action {
	early := o.early
	o.early = nil
	for i := range early {
		out = o.receive(now, early[i].from, &early[i].msg, out)
	}
	return out
}

// maxDirect is the number of ranks up to which the top tells each of them to begin. A rank that begins late delays all
// owners, and next to a multicast, each hop of the control tree may have to wait behind a full queue.
const maxDirect = 64

// spreadGo tells other ranks to begin.
func (o *Op) spreadGo(m wire.Msg, out []step.Action) []step.Action {
	if o.red.Size > maxDirect {
		return o.flood(m, o.parent, out)
	}
	if o.parent < 0 {
		for r := 1; r < o.red.Size; r++ {
			out = o.message(r, m, out)
		}
	}
	return out
}

// finish reports that this rank's subtree has everything. When all ranks do, it returns the buffers.
func (o *Op) finish(now step.Time, out []step.Action) []step.Action {
	if o.phase != step.Handshake || o.repair.fetching > 0 {
		return out
	}
	if !o.informed && !slices.Contains(o.finished, false) {
		o.informed = true
		if o.parent < 0 {
			out = o.endAll(out)
		} else {
			out = o.message(o.parent, wire.Msg{Kind: wire.MsgSentUp}, out)
		}
	}
	// The driver reads the send buffer until it has sent everything that it was asked to send.
	if !o.allHave || o.send.inFlight > 0 {
		return out
	}
	o.phase, o.times.Done = step.Closed, now
	return append(out, step.Action{Kind: step.ActComplete}, step.Action{Kind: step.ActClosed})
}

// endAll tells the subtree that all ranks have everything.
func (o *Op) endAll(out []step.Action) []step.Action {
	o.allHave = true
	return o.flood(wire.Msg{Kind: wire.MsgAllSent}, o.parent, out)
}

// flood sends a message along the control tree, except to the neighbour that it came from.
func (o *Op) flood(m wire.Msg, from int, out []step.Action) []step.Action {
	if o.parent >= 0 && o.parent != from {
		out = o.message(o.parent, m, out)
	}
	for _, c := range o.children {
		if c != from {
			out = o.message(c, m, out)
		}
	}
	return out
}

func (o *Op) message(to int, m wire.Msg, out []step.Action) []step.Action {
	m.Comm, m.Seq = o.cfg.Comm, o.cfg.Seq
	return append(out, step.Action{Kind: step.ActSend, To: to, Msg: m})
}

// Fail ends the Op.
func (o *Op) Fail() {
	if o.phase < step.Closed {
		o.phase, o.timer = step.Failed, step.Never
	}
}
