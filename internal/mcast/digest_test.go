package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// digestRun is an Allgather whose ranks' memory has these sums, on a network that loses
// nothing. late ranks are asked for their sums, and answer when there is nothing else to do.
type digestRun struct {
	ops      []*Collective
	sums     []uint64
	late     []bool
	asked    []int
	complete []bool
	accused  [][2]int // who found whom to differ
	todo     []func()
	later    []func()
}

func newDigestRun(t *testing.T, digest bool, sums ...uint64) *digestRun {
	t.Helper()
	p := len(sums)
	g := oneRound(t, allgather(p, 100, 40, 1, 1))
	r := &digestRun{sums: sums, late: make([]bool, p), asked: make([]int, p), complete: make([]bool, p)}
	for rank := range p {
		r.ops = append(r.ops, New(Config{Geometry: g, Rank: rank, Est: NewEstimator(Limits{}), Digest: digest}))
	}
	return r
}

func (r *digestRun) run() {
	for rank := range r.ops {
		r.step(rank, step.Event{Kind: step.EvStart})
	}
	for len(r.todo)+len(r.later) > 0 {
		if len(r.todo) == 0 {
			r.todo, r.later = r.later[:1:1], r.later[1:]
		}
		f := r.todo[0]
		r.todo = r.todo[1:]
		f()
	}
}

func (r *digestRun) step(rank int, ev step.Event) { r.do(rank, r.ops[rank].Step(0, ev, nil)) }

func (r *digestRun) do(rank int, acts []step.Action) {
	for _, a := range acts {
		switch a.Kind {
		case step.ActSend:
			r.todo = append(r.todo, func() { r.step(a.To, step.Event{Kind: step.EvMsg, From: rank, Msg: &a.Msg}) })
		case step.ActMulticast:
			r.todo = append(r.todo, func() { r.multicast(rank, &a) })
		case step.ActComplete:
			r.complete[rank] = true
		case step.ActDigest:
			r.asked[rank]++
			answer := func() { r.step(rank, step.Event{Kind: step.EvDigest, Digest: r.sums[rank]}) }
			if r.late[rank] {
				r.later = append(r.later, answer)
			} else {
				r.todo = append(r.todo, answer)
			}
		case step.ActCorrupt:
			r.accused = append(r.accused, [2]int{rank, a.To})
		default:
		}
	}
}

func (r *digestRun) multicast(from int, a *step.Action) {
	r.step(from, step.Event{Kind: step.EvSent, N: a.N})
	for to, op := range r.ops {
		for psn := a.PSN; to != from && psn < a.PSN+a.N; psn++ {
			_, _, n := op.g.Locate(a.Sub, psn)
			_, _, acts := op.Chunk(0, a.Sub, psn, n, nil)
			r.do(to, acts)
		}
	}
}

func TestDigests(t *testing.T) {
	for _, c := range []struct {
		name    string
		sums    []uint64
		accused [][2]int
	}{
		{"same", []uint64{7, 7, 7, 7}, nil},
		{"zero", []uint64{0, 0, 0}, nil},
		{"one differs", []uint64{7, 7, 8, 7}, [][2]int{{1, 2}, {2, 3}}},
		{"the first differs", []uint64{0, 7, 7}, [][2]int{{0, 1}, {2, 0}}},
		{"two ranks", []uint64{1, 2}, [][2]int{{0, 1}, {1, 0}}},
		{"all differ", []uint64{1, 2, 3}, [][2]int{{0, 1}, {1, 2}, {2, 0}}},
	} {
		for late := -1; late < len(c.sums); late++ {
			r := newDigestRun(t, true, c.sums...)
			if late >= 0 {
				r.late[late] = true
			}
			r.run()
			slices.SortFunc(r.accused, func(a, b [2]int) int { return a[0] - b[0] })
			if !slices.Equal(r.accused, c.accused) {
				t.Errorf("%s, %d late: %v", c.name, late, r.accused)
			}
			for rank := range c.sums {
				accuses := slices.ContainsFunc(c.accused, func(a [2]int) bool { return a[0] == rank })
				if r.complete[rank] == accuses || r.asked[rank] != 1 {
					t.Errorf("%s, %d late: rank %d: complete %v, asked %d times", c.name, late, rank, r.complete[rank], r.asked[rank])
				}
			}
		}
	}
}

// Nobody is asked without need, and messages are as short as before.
func TestNoDigests(t *testing.T) {
	r := newDigestRun(t, false, 1, 2, 3)
	r.run()
	if slices.Contains(r.complete, false) || slices.Max(r.asked) > 0 || r.accused != nil {
		t.Errorf("complete %v, asked %v, accused %v", r.complete, r.asked, r.accused)
	}
	if n := len(wire.AppendMsg(nil, &wire.Msg{Kind: wire.MsgFinal})); n != 13 { // kind, comm, seq
		t.Errorf("a Final has %d bytes", n)
	}
	one := newDigestRun(t, true, 5) // alone: with whom to compare?
	one.run()
	if !one.complete[0] || one.asked[0] > 0 {
		t.Error("a rank alone was asked")
	}
}

// Spans are the whole buffer, whatever the rounds.
func TestSpans(t *testing.T) {
	s := Shape{Kind: wire.Allgather, Counts: []int64{100, 0, 37, 4000}, Chunk: 10, Chains: 1, Subgroups: 2}
	l := mustLayout(t, 4)
	var covered [100 + 37 + 4000]int
	plan := mustPlan(t, s, l)
	if len(plan) < 2 {
		t.Fatalf("only %d rounds", len(plan))
	}
	for _, g := range plan {
		var sum int64
		g.Spans(func(off, n int64) {
			sum += n
			for i := off; i < off+n; i++ {
				covered[i]++
			}
		})
		if sum != g.Bytes() {
			t.Errorf("spans of %d bytes in a round of %d", sum, g.Bytes())
		}
	}
	for i, n := range covered {
		if n != 1 {
			t.Fatalf("byte %d is in %d spans", i, n)
		}
	}
}
