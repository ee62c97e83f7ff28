package mcast

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// eagerPlan returns an eager Broadcast of n bytes from rank 0 to size ranks, in chunks of 100 bytes.
func eagerPlan(t *testing.T, size int, n int64) *Geometry {
	t.Helper()
	l, err := wire.NewLayout(0)
	if err != nil {
		t.Fatal(err)
	}
	s := Shape{Kind: wire.Broadcast, Counts: make([]int64, size), Chunk: 100, Chains: 1, Subgroups: 4, Eager: 32}
	s.Counts[0] = n
	plan, err := Plan(s, l)
	if err != nil {
		t.Fatal(err)
	}
	return plan[0]
}

func TestWhichCallsAreEager(t *testing.T) {
	for _, x := range []struct {
		size  int
		bytes int64
		want  bool
	}{
		{2, 1, true}, {2, 3200, true}, {2, 3201, false}, {2, 0, false}, {1, 1, false}, {100, 3200, true},
	} {
		if got := eagerPlan(t, x.size, x.bytes).Eager(); got != x.want {
			t.Errorf("%d bytes on %d ranks: eager %v, want %v", x.bytes, x.size, got, x.want)
		}
	}
	if got := EagerChunks(64 * WindowCalls); EagerRoom(got) != 64*WindowCalls/eagerShare {
		t.Errorf("%d chunks per call: they reserve %d places", got, EagerRoom(got))
	}
}

// windows connects the windows of all ranks. Messages travel in the order in which they were sent.
type windows struct {
	all  []*Window
	sent int
}

func newWindows(size int) *windows {
	w := &windows{}
	for rank := range size {
		w.all = append(w.all, NewWindow(0, rank, size))
	}
	return w
}

// deliver delivers the messages of a rank, and those that they cause. It returns mismatches.
func (w *windows) deliver(rank int, acts []step.Action) (mismatches int) {
	for _, a := range acts {
		if a.Kind == step.ActMismatch {
			mismatches++
			continue
		}
		w.sent++
		mismatches += w.deliver(a.To, w.all[a.To].Handle(rank, &a.Msg, nil))
	}
	return mismatches
}

// The window of a sender opens when the last rank has finished, at a cost of two messages per rank.
func TestWindowMoves(t *testing.T) {
	for _, size := range []int{2, 3, 8, 13} {
		w, g := newWindows(size), eagerPlan(t, size, 500)
		for e := range uint64(windowQuantum) {
			for rank, x := range w.all {
				x.Begin(g, 10+e)
				if rank < size-1 {
					w.deliver(rank, x.Finish(e, nil))
				}
			}
		}
		top := w.all[0]
		if top.MaySend(WindowCalls) || !top.MaySend(WindowCalls-1) {
			t.Fatalf("%d ranks: the window is not %d calls", size, WindowCalls)
		}
		for e := range uint64(windowQuantum) {
			w.deliver(size-1, w.all[size-1].Finish(e, nil))
		}
		for rank, x := range w.all {
			if x.All() != windowQuantum || !x.MaySend(WindowCalls+windowQuantum-1) {
				t.Errorf("%d ranks: rank %d knows of %d finished calls, want %d", size, rank, x.All(), windowQuantum)
			}
		}
		if w.sent > 2*(size-1) {
			t.Errorf("%d ranks: %d messages, want at most %d", size, w.sent, 2*(size-1))
		}
	}
}

// A rank that waits for fewer calls than a quantum asks for them.
func TestWindowIsAsked(t *testing.T) {
	w, g := newWindows(5), eagerPlan(t, 5, 500)
	for rank, x := range w.all {
		x.Begin(g, 7)
		w.deliver(rank, x.Finish(0, nil))
	}
	w.deliver(3, w.all[3].AwaitAll(nil))
	for rank, x := range w.all {
		if !x.Idle() {
			t.Errorf("rank %d does not know that all ranks have finished", rank)
		}
	}
}

// Ranks that made different calls find out from the reports.
func TestWindowFindsDifferentCalls(t *testing.T) {
	w, g, other := newWindows(4), eagerPlan(t, 4, 500), eagerPlan(t, 4, 501)
	mismatches := 0
	for e := range uint64(windowQuantum) {
		for rank, x := range w.all {
			if e == 3 && rank == 2 {
				x.Begin(other, 10+e)
			} else {
				x.Begin(g, 10+e)
			}
			mismatches += w.deliver(rank, x.Finish(e, nil))
		}
	}
	if mismatches == 0 {
		t.Error("no rank noticed")
	}
}

func TestIntakeKeepsEarlyDatagrams(t *testing.T) {
	l, err := wire.NewLayout(0)
	if err != nil {
		t.Fatal(err)
	}
	in := NewIntake(l, 1, &place.Taken{}, func() *Report { return &Report{} })
	payload := func(token uint64, psn uint32) []byte { return bytes.Repeat([]byte{byte(token), byte(psn)}, 50) }
	for token := range uint64(WindowCalls + 3) {
		for i, psn := range []uint32{3, 1, 3} { // the third is a duplicate
			want := token < WindowCalls && i < 2
			if got := in.Keep(token, 5, l.Imm(token, psn), 9, payload(token, psn)); got != want {
				t.Fatalf("token %d, chunk %d: kept %v, want %v", token, psn, got, want)
			}
		}
	}
	var psns []uint32
	in.Recall(2, func(imm, sum uint32, b []byte) {
		_, psn := l.Split(imm)
		psns = append(psns, psn)
		if !bytes.Equal(b, payload(2, psn)) || sum != 9 {
			t.Errorf("chunk %d: %v, checksum %d", psn, b, sum)
		}
	})
	if len(psns) != 2 || psns[0] != 3 || psns[1] != 1 || in.Keeps(2) || in.Kept() != WindowCalls-1 {
		t.Errorf("chunks %v, and %d calls left", psns, in.Kept())
	}
	if in.Forget(5); in.Kept() != 0 {
		t.Errorf("%d calls left", in.Kept())
	}
}

// No message of a peer makes an Eager read or offer what it must not.
func TestEagerDistrustsPeers(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		g := eagerPlan(t, 3, 1000)
		w := NewWindow(0, r.IntN(3), 3)
		rank := r.IntN(3)
		o := NewEager(EagerConfig{
			Geometry: g, Rank: rank, Number: w.Begin(g, 0), Window: w, Est: NewEstimator(Limits{}), Pool: NewPool(100, nil),
		})
		acts := o.Step(0, step.Event{Kind: step.EvStart}, nil)
		for now := step.Time(0); now < 40; now++ {
			m := wire.Msg{Kind: wire.MsgEagerFetch, Digest: g.Digest(), Flag: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				m.Kind = wire.MsgEagerSent
			}
			for range r.IntN(3) {
				m.Ranges = append(m.Ranges, wire.Range{PSN: r.Uint32() >> r.IntN(32), N: r.Uint32() >> r.IntN(32)})
			}
			acts = o.Step(now*step.Second, step.Event{Kind: step.EvMsg, From: r.IntN(3), Msg: &m}, acts)
			acts = o.Step(now*step.Second, step.Event{Kind: step.EvTimer}, acts)
		}
		reads := uint32(0)
		for _, a := range acts {
			if a.Kind != step.ActRead {
				continue
			}
			for _, q := range a.Ranges {
				if reads += q.N; a.To != 0 || q.PSN+q.N > 10 || q.N == 0 {
					t.Fatalf("seed %d: rank %d reads %+v from rank %d", seed, rank, a.Ranges, a.To)
				}
			}
		}
		if reads > 10 {
			t.Fatalf("seed %d: %d chunks were read, and there are 10", seed, reads)
		}
	}
}
