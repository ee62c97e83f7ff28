package mcast

import (
	"math/rand/v2"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// During a lull, chunks cause no action, and the cutoff is where the Lull predicts it.
func TestLull(t *testing.T) {
	const chunk = 4096
	s := allgather(4, 20*chunk, chunk, 2, 2)
	limits := Limits{LinkRate: 12.5, Alpha: 10 * step.Microsecond}
	o := started(t, s, 0, Config{Overhead: 78, Est: NewEstimator(limits)})
	if l := o.Lull(); l.Chunks != 0 {
		t.Fatalf("a lull of %d chunks before the multicast", l.Chunks)
	}
	o.phase = step.Multicast
	l := o.Lull()
	if want := o.count.missing - 1; l.Chunks != want {
		t.Fatalf("a lull of %d chunks, want all but the last: %d", l.Chunks, want)
	}
	r := rand.New(rand.NewPCG(1, 1))
	now := step.Time(1000)
	place := func(sub int, psn uint32) []step.Action {
		_, _, length := o.g.Locate(sub, psn)
		_, v, out := o.Chunk(now, sub, psn, length, nil)
		if v != Placed {
			t.Fatalf("chunk %d of subgroup %d: %v", psn, sub, v)
		}
		return out
	}
	var n uint32
	for sub := range o.arrived {
		own := o.arrived[sub].own
		for psn := range o.g.PSNs(sub) {
			if psn-own.PSN < own.N || n == l.Chunks {
				continue
			}
			n++
			now += step.Time(r.IntN(700))
			if out := place(sub, psn); len(out) > 0 {
				t.Fatalf("chunk %d of the lull: %v", n, kinds(out))
			}
			if got, want := o.cutoffAt(), l.Cutoff(now, n); got != want {
				t.Fatalf("cutoff at %d after %d chunks, want %d", got, n, want)
			}
		}
	}
	if l := o.Lull(); n == 0 || l.Chunks != 0 {
		t.Fatalf("a lull of %d chunks after %d chunks of all but one", l.Chunks, n)
	}
}

// There is no lull while an arrival may cause a message, and none after everything was sent, when the cutoff
// follows another rule.
func TestNoLull(t *testing.T) {
	s := allgather(4, 9, 4, 1, 1)
	for name, message := range map[string]wire.Msg{
		"a neighbour waits for chunks": {Kind: wire.MsgFetch, Ranges: []wire.Range{{PSN: 1, N: 2}}},
		"all were sent":                {Kind: wire.MsgAllSent},
	} {
		o := paperOp(t, s, 2)
		if o.Lull().Chunks == 0 {
			t.Fatal("no lull before the message")
		}
		from := 3
		if message.Kind == wire.MsgAllSent {
			from = 0
		}
		hear(o, from, message)
		if n := o.Lull().Chunks; n > 0 {
			t.Errorf("%s: a lull of %d chunks", name, n)
		}
	}
}

func TestEdge(t *testing.T) {
	g := oneRound(t, Shape{Kind: wire.Allgather, Counts: []int64{3, 0, 1, 5}, Chunk: 1, Chains: 1, Subgroups: 1})
	p := newPlacement(g, 0, 1, 0, 0)
	for psn, want := range []bool{true, false, true, true, true, false, false, false, true} {
		if got := p.Edge(uint32(psn)); got != want {
			t.Errorf("chunk %d: %v, want %v", psn, got, want)
		}
	}
}
