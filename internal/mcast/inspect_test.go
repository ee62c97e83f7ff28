package mcast

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A timeout blames the rank that WaitingOn names: the name must be right in each phase.
func TestWaitingOn(t *testing.T) {
	expect := func(o *Collective, phase step.Phase, want int) {
		t.Helper()
		if o.Phase() != phase || o.WaitingOn() != want {
			t.Errorf("%v, waits for %d; want %v, %d", o.Phase(), o.WaitingOn(), phase, want)
		}
	}
	s := allgather(4, 8, 8, 1, 1)
	o := started(t, s, 1, Config{})
	expect(o, step.Barrier, 0)
	hear(o, 0, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Digest: o.g.Digest()})
	expect(o, step.Barrier, 3)
	hear(o, 3, wire.Msg{Kind: wire.MsgBarrier, Round: 2, Digest: o.g.Digest()})
	expect(o, step.Multicast, 0) // for its turn
	hear(o, 0, wire.Msg{Kind: wire.MsgChainSent})
	expect(o, step.Multicast, 1) // for its own fabric
	o.Step(1, step.Event{Kind: step.EvSent, N: 1}, nil)
	o.Chunk(1, 0, 0, 8, nil)
	expect(o, step.Multicast, 2) // for the owner of the missing chunks
	o.Chunk(1, 0, 3, 8, nil)
	expect(o, step.Multicast, 2) // likewise: rank 3 may have been activated early
	hear(o, 0, wire.Msg{Kind: wire.MsgAllSent})
	o.Step(o.Timer(), step.Event{Kind: step.EvTimer}, nil)
	expect(o, step.Fetch, 0) // for the left neighbour
	o.Chunk(1, 0, 2, 8, nil)
	expect(o, step.Handshake, 2) // for the right one
	hear(o, 2, wire.Msg{Kind: wire.MsgFinal})
	if o.Phase() < step.Lingering || o.WaitingOn() != 1 {
		t.Errorf("%v, waits for %d", o.Phase(), o.WaitingOn())
	}
}

// Without credit: the parent in the control tree, or at the top the child that
// holds all up.
func TestWaitingOnCredit(t *testing.T) {
	for _, c := range []struct{ root, peer, want int }{{0, 1, 2}, {3, 2, 2}} {
		o := started(t, broadcast(4, c.root, 100, 1, 1), c.root, Config{Flow: FlowCredit, Pool: NewPool(8, nil)})
		for o.Phase() == step.Barrier {
			hear(o, o.bar.peer(o.bar.round), wire.Msg{
				Kind: wire.MsgBarrier, Round: uint8(o.bar.round), Grant: 1, Digest: o.g.Digest(),
			})
		}
		o.Step(1, step.Event{Kind: step.EvSent, N: 1}, nil)
		hear(o, c.peer, wire.Msg{Kind: wire.MsgGrantUp, Grant: 50})
		if !o.snd.blocked || o.WaitingOn() != c.want {
			t.Errorf("root %d: blocked %v, waits for %d, want %d", c.root, o.snd.blocked, o.WaitingOn(), c.want)
		}
	}
}

func TestMissingDescribes(t *testing.T) {
	o := paperOp(t, allgather(3, 80, 8, 1, 2), 1)
	if got, want := o.Missing(nil),
		"rank 0 chunks 0-4, rank 2 chunks 0-4, rank 0 chunks 5-9, rank 2 chunks 5-9"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for sub := range 2 {
		for psn := range o.g.PSNs(sub) {
			o.Chunk(1, sub, psn, 8, nil)
		}
	}
	if got := o.Missing(nil); got != "nothing" {
		t.Errorf("%q", got)
	}
	o = paperOp(t, broadcast(2, 0, 100, 1, 1), 1)
	for psn := uint32(0); psn < 100; psn += 2 {
		o.Chunk(1, 0, psn, 1, nil)
	}
	if got := o.Missing(nil); !strings.HasSuffix(got, ", and 42 more ranges") || strings.Count(got, "rank 0") != 8 {
		t.Errorf("%q", got)
	}
}

// A failed Collective is inert.
func TestFail(t *testing.T) {
	pool := NewPool(64, nil)
	o := started(t, broadcast(2, 0, 100, 1, 1), 1, Config{Flow: FlowCredit, Pool: pool})
	hear(o, 0, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Grant: 8, Digest: o.g.Digest()})
	o.Chunk(1, 0, 5, 1, nil)
	o.Fail()
	o.Fail()
	if o.Phase() != step.Failed || o.Timer() != step.Never || pool.Lent() != 0 || pool.ops != 0 {
		t.Errorf("%v, timer %d, %d places lent", o.Phase(), o.Timer(), pool.Lent())
	}
	if _, v, acts := o.Chunk(1, 0, 6, 1, nil); v != Foreign || len(acts) > 0 {
		t.Errorf("a chunk: verdict %d, %v", v, acts)
	}
	if acts := hear(o, 0, wire.Msg{Kind: wire.MsgAllSent}, wire.Msg{Kind: wire.MsgFinal}); len(acts) > 0 {
		t.Errorf("messages: %v", acts)
	}
}

func TestNames(t *testing.T) {
	for _, f := range []Flow{FlowNone, FlowCredit} {
		if got, err := ParseFlow(f.String()); got != f || err != nil {
			t.Errorf("%v: %v, %v", f, got, err)
		}
	}
	if _, err := ParseFlow("window"); err == nil || !strings.Contains(err.Error(), "none, credit") {
		t.Errorf("%v does not say what is valid", err)
	}
	if step.Queued.String() != "queued" || step.Failed.String() != "failed" || step.Phase(99).String() != "phase(99)" {
		t.Errorf("%v %v %v", step.Queued, step.Failed, step.Phase(99))
	}
	if wire.Broadcast.String() != "broadcast" || wire.Allgather.String() != "allgather" ||
		wire.CallKind(0).String() != "kind(0)" {
		t.Errorf("%v %v %v", wire.Broadcast, wire.Allgather, wire.CallKind(0))
	}
}
