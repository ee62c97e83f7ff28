package inc

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

const fatTree = "t:1;a:1=0-2>t:1;b:1=3-5>t:1;c:1=6-7>t:1"

// Without loss there are no requests and no fetches, and each link carries each place once.
func TestNetworkWithoutFaults(t *testing.T) {
	w := newWorld(t, "no faults", 1, mustTree(t, fatTree, 8), 64, 64)
	for range 3 {
		w.addOp(equalCounts(8, 64*50), 64, reduce.F32, reduce.Sum)
	}
	w.run(step.Second)
	// A place takes seven contributions, the sums of three leaves, and one result. The owner's leaf has others to add.
	if want := 3 * 400 * (7 + 3 + 1); w.asks != 0 || w.fetches != 0 || len(w.links) != want {
		t.Errorf("%d requests, %d fetches, %d datagrams, want %d", w.asks, w.fetches, len(w.links), want)
	}
}

// One try heals the loss of any single datagram at any hop, and costs each link one datagram.
func TestOneTryHealsAnyHop(t *testing.T) {
	tree := mustTree(t, fatTree, 8)
	const place = 21 // of rank 5, in the middle
	perPlace := 7 + 3 + 1
	hops := map[link]bool{}
	for from := range 8 {
		if node, _ := tree.Server(from); from != place%8 {
			hops[link{from: from, to: -1 - node}] = true
		}
	}
	for node := 1; node < 4; node++ {
		hops[link{from: -1 - node, to: -1}] = true
	}
	hops[link{from: -1, to: place % 8}] = true
	if len(hops) != perPlace {
		t.Fatal(len(hops))
	}
	for hop := range hops {
		w := newWorld(t, fmt.Sprintf("loss from %d to %d", hop.from, hop.to), 1, tree, 64, 64)
		w.addOp(equalCounts(8, 64*50), 64, reduce.F32, reduce.Sum)
		drops := 0
		w.faults.drop = func(g *gram) bool {
			lost := g.Place == place && g.from == hop.from && g.to == hop.to && g.Try == 0
			if lost {
				drops++
			}
			return lost
		}
		w.run(step.Second)
		if drops != 1 || w.asks != 1 || w.fetches != 0 {
			t.Errorf("%s: %d drops, %d requests, %d fetches", w.what, drops, w.asks, w.fetches)
		}
		for l, n := range w.links {
			if n > 1 || l.try > 1 || l.try > 0 && l.place != place {
				t.Errorf("%s: %+v was used %d times", w.what, l, n)
			}
		}
		// Hops above the loss have not carried the place before, and carry it once.
		if extra := len(w.links) - 400*perPlace; extra < 0 || extra > perPlace {
			t.Errorf("%s: %d additional datagrams", w.what, extra)
		}
	}
}

// The sums of floats have the same bits in all runs on the same tree, whatever is lost, late or fetched.
func TestSameBits(t *testing.T) {
	tree := mustTree(t, "t:1=0;a:1=1-3>t:1;b:1=4-5>a:1;c:1=6>t:1", 7)
	for _, typ := range []reduce.Type{reduce.F16, reduce.BF16, reduce.F32, reduce.F64} {
		var first [][]byte
		fetches := 0
		for seed := range uint64(100) {
			w := newWorld(t, fmt.Sprintf("%v, seed %d", typ, seed), 1, tree, 16, 64) // the same inputs in all runs
			w.similar = true
			x := w.addOp(equalCounts(7, 64*10), 64, typ, reduce.Sum)
			w.reseed(seed)
			w.faults.loss, w.faults.dup, w.faults.jitter = float64(seed%10)/25, 0.1, 200*step.Microsecond
			if seed%10 == 9 {
				w.faults.noticed = map[int]step.Time{int(seed/10) % 7: step.Time(seed) * 7 * step.Microsecond}
			}
			w.run(5 * step.Second)
			fetches += w.fetches
			if first == nil {
				first = x.want
				if bytes.Equal(first[0], orderless(w, x, 0)) {
					t.Errorf("%v: the inputs do not show the order of addition", typ)
				}
			}
			for rank, want := range first {
				if !bytes.Equal(w.results[0][rank], want) {
					t.Fatalf("%s: rank %d got other bits", w.what, rank)
				}
			}
		}
		if fetches == 0 {
			t.Error("no run fetched a chunk")
		}
	}
}

// orderless adds the inputs of an owner's block in the order of ranks.
func orderless(w *world, x *operation, owner int) []byte {
	_, _, off, _ := x.layout.At(x.layout.Place(owner, 0))
	sum := bytes.Clone(x.inputs[0][off : off+x.counts[owner]])
	for _, in := range x.inputs[1:] {
		if err := reduce.Into(sum, in[off:off+x.counts[owner]], x.typ, x.op); err != nil {
			w.fatalf("%v", err)
		}
	}
	return sum
}

// An aggregator that dies, stops for a while or comes back without state delays an operation by a bounded time.
func TestAggregatorFailures(t *testing.T) {
	const ms = step.Millisecond
	tree := mustTree(t, fatTree, 8)
	for _, c := range []struct {
		name     string
		dead     [2]step.Time
		crash    bool
		limit    step.Time
		fallback bool // whether it must happen; otherwise it must not
	}{
		{"restarts at once", [2]step.Time{2 * ms, 2*ms + 1}, true, 40 * ms, false},
		{"restarts soon", [2]step.Time{2 * ms, 10 * ms}, true, 50 * ms, false},
		{"stops for a moment", [2]step.Time{2 * ms, 20 * ms}, false, 60 * ms, false},
		{"stops for long", [2]step.Time{2 * ms, step.Second}, false, 200 * ms, true},
		{"dies", [2]step.Time{2 * ms, 1000 * step.Second}, true, 200 * ms, true},
		{"was never there", [2]step.Time{0, 1000 * step.Second}, true, 200 * ms, true},
	} {
		for node := range tree.Nodes {
			w := newWorld(t, fmt.Sprintf("aggregator %d %s", node, c.name), 1, tree, 64, 64)
			w.addOp(equalCounts(8, 64*100), 64, reduce.BF16, reduce.Sum)
			w.faults.dead, w.faults.crash = map[int][2]step.Time{node: c.dead}, map[int]bool{node: c.crash}
			w.run(c.limit)
			if (w.fallbacks > 0) != c.fallback {
				t.Errorf("%s: %d ranks fell back", w.what, w.fallbacks)
			}
		}
	}
}

// A rank that is stopped delays everybody, but nobody blames the aggregators.
func TestStoppedRank(t *testing.T) {
	tree := mustTree(t, fatTree, 8)
	for rank := range 8 {
		w := newWorld(t, fmt.Sprintf("rank %d is stopped", rank), 1, tree, 64, 64)
		w.addOp(equalCounts(8, 64*100), 64, reduce.F32, reduce.Sum)
		w.faults.pauses = map[int][2]step.Time{rank: {step.Second + step.Millisecond, 2 * step.Second}}
		w.run(2 * step.Second)
		if w.fallbacks > 0 || w.ended > 2*step.Second+50*step.Millisecond {
			t.Errorf("%s: %d ranks fell back, ended %d us after it",
				w.what, w.fallbacks, (w.ended-2*step.Second)/step.Microsecond)
		}
	}
	// A short pause costs few requests.
	w := newWorld(t, "a short pause", 1, tree, 64, 64)
	w.addOp(equalCounts(8, 64*100), 64, reduce.F32, reduce.Sum)
	w.faults.pauses = map[int][2]step.Time{3: {step.Second + 2*step.Millisecond, step.Second + 20*step.Millisecond}}
	w.run(step.Second)
	if again := len(w.links) - 800*11; w.fetches > 0 || again > 400*11 {
		t.Errorf("%d fetches, %d additional datagrams", w.fetches, again)
	}
}

// On a link of 200 Mbit/s with datagrams of 1400 bytes, an operation takes hardly longer than its bytes.
func TestThroughput(t *testing.T) {
	tree := mustTree(t, "t:1=0-7", 8)
	for _, c := range []struct {
		loss   float64
		window uint32
		want   float64 // of the link's rate
		extra  float64 // additional datagrams
	}{
		{0, 128, 0.99, 0},
		{0, 1024, 0.99, 0},
		{0.001, 256, 0.96, 0.02},
		{0.001, 1024, 0.96, 0.02},
		{0.01, 256, 0.8, 0.1},
		{0.01, 1024, 0.85, 0.1},
		{0.01, 2048, 0.85, 0.1},
	} {
		w := newWorld(t, "throughput", 1, tree, c.window, 64)
		w.faults.loss, w.gap, w.alpha, w.batch, w.silent = c.loss, 57*step.Microsecond, 3*step.Millisecond, 32, 0
		w.addOp(equalCounts(8, 64*750), 64, reduce.F32, reduce.Sum)
		w.run(10 * step.Second)
		rate := float64(7*750*w.gap) / float64(w.ended-step.Second)
		extra := float64(len(w.links))/(750*8*8) - 1
		t.Logf("loss %g, window %d: %.2f of the rate, %d requests, %.2f additional datagrams",
			c.loss, c.window, rate, w.asks, extra)
		if rate < c.want || extra > c.extra || w.fetches > 0 {
			t.Errorf("loss %g, window %d: %.2f of the rate, %.2f additional datagrams, %d fetches",
				c.loss, c.window, rate, extra, w.fetches)
		}
	}
}

// A sum costs its owner little, and no memory.
func BenchmarkOpSummed(b *testing.B) {
	const chunks = 1 << 20
	r := &Reduction{Rank: 0, Size: 8, Kind: wire.ReduceScatter, Counts: equalCounts(8, 8*chunks), Chunk: 8}
	var o *Op
	now, out := step.Second, make([]step.Action, 0, 64)
	b.ReportAllocs()
	for i := range b.N {
		if i%chunks == 0 {
			b.StopTimer()
			o = New(Config{Reduction: r, Window: 1024, Batch: 32, Alpha: func() step.Time { return step.Millisecond }})
			o.Step(now, step.Event{Kind: step.EvStart}, nil)
			for _, c := range o.children {
				o.Step(now, step.Event{Kind: step.EvMsg, From: c, Msg: &wire.Msg{
					Kind: wire.MsgReady, Digest: o.digest, Grant: 1024,
				}}, nil)
				o.Step(now, step.Event{Kind: step.EvMsg, From: c, Msg: &wire.Msg{Kind: wire.MsgGrantUp, Grant: 1 << 30}}, nil)
			}
			b.StartTimer()
		}
		now += step.Microsecond
		nth := uint32(i % chunks)
		o.record.Take(nth)
		o.record.Finish(nth, 1)
		out = o.Summed(now, out[:0])
		out = o.Step(now, step.Event{Kind: step.EvSent, N: 8}, out[:0])
	}
}
