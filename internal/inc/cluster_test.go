package inc

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
)

// A world is ranks and aggregators in virtual time. Datagrams may be lost, duplicated and delayed at every hop.
// Messages between ranks are reliable and in order.
type world struct {
	t       testing.TB
	what    string
	rand    *rand.Rand
	now     step.Time
	queue   events
	serial  uint64
	tree    *Tree
	window  uint32 // of the aggregators
	batch   uint32
	gap     step.Time // time of a datagram on a rank's link
	alpha   step.Time
	ranks   []*member
	nodes   []*aggregator
	faults  faults
	ops     []*operation
	links   map[link]int
	fifo    map[[2]int]step.Time // time at which the last message between two ranks arrives
	silent  step.Time            // Limits.Silent
	similar bool                 // whether floats have similar sizes, so that every rounding shows; otherwise any bits

	asks, fetches int        // requests sent by their owners, and chunks fetched
	offers        int        // contributions that were offered again
	fallbacks     int        // ranks that fell back
	results       [][][]byte // by operation and rank
	events        int
	ended         step.Time // time at which the last rank completed the last operation
}

// faults is what goes wrong.
type faults struct {
	loss, dup float64
	jitter    step.Time            // largest extra delay of a datagram
	drop      func(d *gram) bool   // when set, decides about loss as well
	slow      map[int]step.Time    // by rank: extra time per event
	pauses    map[int][2]step.Time // by rank: stopped between these times
	dead      map[int][2]step.Time // by aggregator: handles nothing between these times
	crash     map[int]bool         // whether a dead aggregator comes back without state
	noticed   map[int]step.Time    // by rank: time at which its control connection reports a failure
}

// An operation is one call on all ranks.
type operation struct {
	number uint32
	counts []int64
	typ    reduce.Type
	op     reduce.Op
	chunk  int
	layout *Layout
	inputs [][]byte // by rank
	want   [][]byte // by owner
	began  step.Time
	done   int
	widths []uint32 // by rank: window that it reports
}

// A member is a rank: its Op and the state of its driver.
type member struct {
	w         *world
	rank      int
	op        *Op
	cur       int // index of the current operation
	out       []byte
	timer     step.Time
	linkFree  step.Time
	completed bool
	lost      bool // whether its control connection is down
	timers    int
	answers   Answers
}

type aggregator struct {
	session *Session
	node    int
	restart bool // whether it has lost its state since the last datagram
}

// A gram is a datagram on its way.
type gram struct {
	from, to int // ranks, or aggregators as -1-node
	Header
	payload []byte
}

type link struct {
	from, to int
	kind     Kind
	number   uint32
	place    uint32
	try      uint8
}

type event struct {
	at     step.Time
	serial uint64
	run    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].serial < e[j].serial
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

const (
	hop  = 20 * step.Microsecond // latency of a datagram per hop
	trip = 50 * step.Microsecond // latency of a message
)

func newWorld(t testing.TB, what string, seed uint64, tree *Tree, window uint32, chunk int) *world {
	t.Helper()
	w := &world{
		t: t, what: what, rand: rand.New(rand.NewPCG(seed, 7)), tree: tree, window: window, links: map[link]int{},
		fifo: map[[2]int]step.Time{}, now: step.Second, batch: 4, gap: step.Microsecond, alpha: 300 * step.Microsecond,
		silent: 100 * step.Millisecond,
	}
	for node := range tree.Nodes {
		w.nodes = append(w.nodes, &aggregator{session: testSession(tree, node, window, chunk, 1), node: node})
	}
	for rank := range tree.Size() {
		w.ranks = append(w.ranks, &member{w: w, rank: rank, cur: -1, timer: step.Never})
	}
	return w
}

// reseed makes the rest of a run differ from other runs with the same inputs.
func (w *world) reseed(seed uint64) { w.rand = rand.New(rand.NewPCG(seed, 8)) }

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s at %d us: %s", w.what, (w.now-step.Second)/step.Microsecond, fmt.Sprintf(format, args...))
}

func (w *world) at(at step.Time, run func()) {
	w.serial++
	heap.Push(&w.queue, event{max(at, w.now), w.serial, run})
}

// atRank runs an event on a rank, later if the rank is stopped or slow.
func (w *world) atRank(at step.Time, rank int, run func()) {
	at += w.faults.slow[rank]
	w.at(at, func() {
		if p, ok := w.faults.pauses[rank]; ok && w.now >= p[0] && w.now < p[1] {
			w.at(p[1], run)
			return
		}
		run()
	})
}

// addOp adds an operation whose inputs are random.
func (w *world) addOp(counts []int64, chunk int, typ reduce.Type, op reduce.Op) *operation {
	x := &operation{
		number: uint32(len(w.ops)) - 2, counts: counts, typ: typ, op: op, chunk: chunk, layout: NewLayout(counts, chunk),
	}
	total := int64(0)
	for _, n := range counts {
		total += n
	}
	for range w.ranks {
		in := make([]byte, total)
		for i := range in {
			in[i] = byte(w.rand.Uint32())
		}
		if w.similar {
			w.fillSimilar(in, typ)
		}
		x.inputs = append(x.inputs, in)
		x.widths = append(x.widths, w.window)
	}
	off := int64(0)
	for owner, n := range counts {
		x.want = append(x.want, w.sum(x, owner, off, n))
		off += n
	}
	w.ops = append(w.ops, x)
	w.results = append(w.results, make([][]byte, len(w.ranks)))
	return x
}

// fillSimilar fills a buffer with floats from -1 to 1.
func (w *world) fillSimilar(b []byte, typ reduce.Type) {
	for at := 0; at < len(b); at += typ.Size() {
		switch x := 2*w.rand.Float64() - 1; typ {
		case reduce.F16:
			binary.LittleEndian.PutUint16(b[at:], reduce.F32ToF16(float32(x)))
		case reduce.BF16:
			binary.LittleEndian.PutUint16(b[at:], reduce.F32ToBF16(float32(x)))
		case reduce.F32:
			binary.LittleEndian.PutUint32(b[at:], math.Float32bits(float32(x)))
		case reduce.F64:
			binary.LittleEndian.PutUint64(b[at:], math.Float64bits(x))
		}
	}
}

// sum computes a sum from the inputs with Combine.
func (w *world) sum(x *operation, owner int, off, n int64) []byte {
	dst := make([]byte, n)
	add := func(dst, src []byte) {
		if err := reduce.Into(dst, src, x.typ, x.op); err != nil {
			w.fatalf("%v", err)
		}
	}
	w.tree.Combine(dst, owner, make([]byte, int64(w.tree.Depth())*n),
		func(r int) []byte { return x.inputs[r][off : off+n] }, add)
	if w.tree.Size() == 1 {
		copy(dst, x.inputs[owner][off:])
		return dst
	}
	add(dst, x.inputs[owner][off:off+n])
	return dst
}

// run runs all operations and checks their results. They must end before the limit.
func (w *world) run(limit step.Time) {
	w.t.Helper()
	for _, m := range w.ranks {
		w.atRank(w.now+step.Time(w.rand.Int64N(int64(trip))), m.rank, m.startNext)
	}
	for rank, at := range w.faults.noticed {
		w.atRank(step.Second+at, rank, w.ranks[rank].loseAggregators)
	}
	deadline := w.now + limit
	for len(w.queue) > 0 {
		e := heap.Pop(&w.queue).(event)
		if w.now = e.at; w.now > deadline {
			w.stuck("not complete")
		}
		if w.events++; w.events > 20_000_000 {
			w.fatalf("too many events")
		}
		e.run()
	}
	for i, x := range w.ops {
		if x.done != len(w.ranks) {
			w.stuck(fmt.Sprintf("operation %d: only %d ranks completed, and nothing happens any more", i, x.done))
		}
	}
}

func (w *world) stuck(what string) {
	w.t.Helper()
	var b bytes.Buffer
	for _, m := range w.ranks {
		if m.op != nil {
			fmt.Fprintf(&b, "\nrank %d: operation %d, %v, waits for %d, misses %s; credit %d of %d, next %d, in flight %d, "+
				"asks %d, fetching %d, timer %d", m.rank, m.cur, m.op.Phase(), m.op.WaitingOn(), m.op.Missing(nil),
				m.op.credit.all, m.op.total, m.op.send.next, m.op.send.inFlight, len(m.op.repair.asks), m.op.repair.fetching,
				(m.op.Timer()-step.Second)/step.Microsecond)
		}
	}
	w.fatalf("%s%s", what, b.String())
}

func equalCounts(size int, n int64) []int64 {
	c := make([]int64, size)
	for i := range c {
		c[i] = n
	}
	return c
}
