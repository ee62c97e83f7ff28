package mcast

import (
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

func eagerChains(t *testing.T) *Geometry {
	t.Helper()
	l, err := wire.NewLayout(0)
	if err != nil {
		t.Fatal(err)
	}
	s := Shape{
		Kind: wire.Allgather, Counts: []int64{100, 100, 100, 100}, Chunk: 100, Subgroups: 1, Eager: 32,
		Groups: [][]int{{0, 2}, {1, 3}},
	}
	plan, err := Plan(s, l)
	if err != nil {
		t.Fatal(err)
	}
	if !plan[0].Eager() {
		t.Fatal("the call is not eager")
	}
	return plan[0]
}

// The request for a chunk goes to its owner, whatever the order of the chains.
func TestEagerAsksOwner(t *testing.T) {
	g := eagerChains(t)
	w := NewWindow(0, 0, 4)
	o := NewEager(EagerConfig{
		Geometry: g, Window: w, Number: w.Begin(g, 0), Est: NewEstimator(Limits{}), Pool: NewPool(100, nil),
	})
	o.Step(1, step.Event{Kind: step.EvStart}, nil)
	for _, a := range o.Step(o.Timer()+1, step.Event{Kind: step.EvTimer}, nil) {
		if a.Kind == step.ActSend {
			for _, q := range a.Msg.Ranges {
				if g.Owner(0, q.PSN) != a.To {
					t.Errorf("asks rank %d for chunk %d of rank %d", a.To, q.PSN, g.Owner(0, q.PSN))
				}
			}
		}
	}
}

// A chunk that is placed before the call begins counts.
func TestEagerPlacedBeforeStart(t *testing.T) {
	g := eagerPlan(t, 2, 100)
	w := NewWindow(0, 1, 2)
	o := NewEager(EagerConfig{
		Geometry: g, Rank: 1, Window: w, Number: w.Begin(g, 0), Est: NewEstimator(Limits{}), Pool: NewPool(100, nil),
	})
	o.place.Finish(0, 1)
	o.Placed(1, wire.Range{PSN: 0, N: 1}, nil)
	o.Step(2, step.Event{Kind: step.EvStart}, nil)
	var acts []step.Action
	for range 5 {
		acts = o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, acts)
	}
	if o.Phase() < step.Lingering {
		t.Errorf("phase %v, acts %v, missing %d", o.Phase(), acts, o.missing)
	}
}

// A second request for reports does not delay the answer to the first.
func TestWindowTwoAsks(t *testing.T) {
	w, g := newWindows(2), eagerPlan(t, 2, 100)
	a, x := w.all[0], w.all[1]
	a.Begin(g, 0)
	w.deliver(0, a.Finish(0, nil))
	w.deliver(0, a.AwaitAll(nil))
	a.Begin(g, 300)
	w.deliver(0, a.AwaitAll(nil))
	x.Begin(g, 0)
	w.deliver(1, x.Finish(0, nil))
	w.deliver(1, x.Await(1, nil))
	if a.All() != 1 || x.All() != 1 {
		t.Errorf("both ranks have finished 1 call; they know of %d and %d", a.All(), x.All())
	}
}

// A parent that claims more than this rank has reported does no harm.
func TestWindowLyingParent(t *testing.T) {
	g := eagerPlan(t, 8, 100)
	var w *Window // of a rank with a parent and one child
	for rank := range 8 {
		if w = NewWindow(0, rank, 8); w.parent >= 0 && len(w.children) == 1 {
			break
		}
	}
	for e := range uint64(100) {
		n := w.Begin(g, e)
		w.Finish(n, nil)
		w.Handle(w.parent, &wire.Msg{Kind: wire.MsgFinished, Grant: w.finished}, nil)
	}
	w.Handle(w.children[0], &wire.Msg{Kind: wire.MsgFinishedUp, Grant: 8}, nil)
}

// A sender that makes its calls late does not make the network look slow.
func TestEagerSkew(t *testing.T) {
	g := eagerPlan(t, 2, 100)
	w := NewWindow(0, 1, 2)
	est := NewEstimator(Limits{Alpha: 100 * step.Microsecond, MinAlpha: 20 * step.Microsecond, MaxAlpha: step.Second})
	now := step.Time(0)
	for i := range uint64(12) { // the root makes each call 50 ms after this rank
		o := NewEager(EagerConfig{
			Geometry: g, Rank: 1, Window: w, Seq: i, Number: w.Begin(g, i), Est: est, Pool: NewPool(100, nil),
		})
		o.Step(now, step.Event{Kind: step.EvStart}, nil)
		for at := o.Timer(); at < now+50*step.Millisecond; at = o.Timer() {
			o.Step(at, step.Event{Kind: step.EvTimer}, nil)
		}
		now += 50 * step.Millisecond
		o.place.Finish(0, 1)
		o.Placed(now, wire.Range{PSN: 0, N: 1}, nil)
		if o.Phase() < step.Lingering {
			t.Fatalf("call %d is in phase %v", i, o.Phase())
		}
		now += step.Millisecond
	}
	if est.Alpha() > step.Millisecond {
		t.Errorf("alpha is %d ns", est.Alpha())
	}
}

// lateCall makes one eager call of ten chunks, whose sender is late. One of the chunks is lost, and read. It returns
// the number of requests and the time of the end.
func lateCall(t *testing.T, o *Eager, now, late step.Time, lost uint32) (requests int, end step.Time) {
	t.Helper()
	const latency = 20 * step.Microsecond
	readEnds, arrives := step.Never, now+late+latency
	var reads []wire.Range
	act := func(acts []step.Action) {
		for _, a := range acts {
			switch {
			case a.Kind == step.ActSend && a.Msg.Kind == wire.MsgEagerFetch:
				requests++
			case a.Kind == step.ActRead:
				reads, readEnds = append(reads, a.Ranges...), now+2*latency
			}
		}
	}
	act(o.Step(now, step.Event{Kind: step.EvStart}, nil))
	for o.Phase() < step.Lingering {
		now = min(o.Timer(), arrives, readEnds)
		switch now {
		case step.Never:
			t.Fatalf("stuck in phase %v, missing %d", o.Phase(), o.missing)
		case arrives:
			arrives = step.Never
			for psn := range o.place.Len() {
				if psn != lost {
					o.place.Finish(psn, 1)
					act(o.Placed(now, wire.Range{PSN: psn, N: 1}, nil))
				}
			}
		case readEnds:
			readEnds = step.Never
			for _, q := range reads {
				o.place.Finish(q.PSN, q.N)
			}
			act(o.Step(now, step.Event{Kind: step.EvRead, Ranges: reads}, nil))
			reads = nil
		default:
			act(o.Step(now, step.Event{Kind: step.EvTimer}, nil))
		}
	}
	return requests, now
}

// Lost chunks teach a rank how quick the network is. That does not make it ask senders which are late by less than the
// first alpha.
func TestEagerIsPatientWithLateSenders(t *testing.T) {
	const calls, usual = 400, 500 * step.Microsecond
	g := eagerPlan(t, 2, 1000)
	for name, late := range map[string]func(r *rand.Rand, i int) step.Time{
		"always":    func(*rand.Rand, int) step.Time { return usual },
		"by chance": func(r *rand.Rand, _ int) step.Time { return step.Time(r.Int64N(int64(usual))) },
		"now and then": func(_ *rand.Rand, i int) step.Time {
			return usual * step.Time(b2i(i%10 == 9))
		},
		"never": func(*rand.Rand, int) step.Time { return 0 },
	} {
		w, r := NewWindow(0, 1, 2), rand.New(rand.NewPCG(1, 1))
		est := NewEstimator(Limits{Alpha: step.Millisecond, MinAlpha: 50 * step.Microsecond, MaxAlpha: step.Second})
		now, asked, repairs := step.Second, 0, step.Time(0)
		for i := range uint64(calls) {
			o := NewEager(EagerConfig{
				Geometry: g, Rank: 1, Window: w, Seq: i, Number: w.Begin(g, i), Est: est, Pool: NewPool(100, nil),
			})
			d := late(r, int(i))
			requests, end := lateCall(t, o, now, d, uint32(r.IntN(20))) // half of the calls lose a chunk
			asked += requests
			repairs = max(repairs, end-now-d)
			now = end + step.Millisecond
		}
		if asked > 0 {
			t.Errorf("senders late %s: %d requests in %d calls", name, asked, calls)
		}
		if repairs > 200*step.Microsecond {
			t.Errorf("senders late %s: a repair took %d ns", name, repairs)
		}
		if !est.Measured() || est.Alpha() > 300*step.Microsecond {
			t.Errorf("senders late %s: alpha is %d ns, after a hundred losses", name, est.Alpha())
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
