package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// runWithout runs until nothing else can happen, while the receive worker and the timers of a rank are
// stopped.
func (w *world) runWithout(m *member) {
	m.grams.Held, m.mute = true, true
	w.Order, w.Timers = clustertest.Oldest, clustertest.TimersIdle
	for events := 0; w.StepBefore(w.Now + step.Second); events++ {
		if events > 100_000 {
			w.Failf("no end")
		}
	}
	m.grams.Held, m.mute = false, false
	w.Order, w.Timers = clustertest.Random, clustertest.TimersSampled
}

// Senders must not exceed the room of a receive worker that is stopped while the rest of its process
// runs. In particular, a mark that overtakes its datagrams does not make room for more.
func TestCreditDoesNotOverrunASlowWorker(t *testing.T) {
	const room = 8
	for _, deaf := range []int{1, 2, 3} {
		s := broadcast(4, 0, 256, 1, 1)
		w := newWorld(t, 1, 4, Limits{Alpha: 10 * step.Microsecond}, room)
		c := w.open(s, network{}, Config{Flow: FlowCredit, Batch: 4})
		w.runWithout(c.ranks[deaf])
		if n := c.ranks[deaf].grams.Len(); n == 0 || n > room {
			t.Errorf("rank %d: %d datagrams wait for its worker, it has room for %d", deaf, n, room)
		}
		w.run()
		w.empty()
	}
}

// An announced chunk counts as consumed once the worker has taken as many datagrams as the queue
// holds, of any collective: a collective that lost a chunk must not wait until all others are silent.
func TestMarkPassesWhileOthersReceive(t *testing.T) {
	pool := NewPool(8, nil)
	o := started(t, broadcast(2, 0, 100, 1, 1), 1, Config{Flow: FlowCredit, Pool: pool})
	hear(o, 0,
		wire.Msg{Kind: wire.MsgBarrier, Round: 1, Grant: 4, Digest: o.g.Digest()},
		wire.Msg{Kind: wire.MsgMark, Rank: 0, Counts: []uint32{1}},
	)
	now := step.Time(1)
	for range 100 {
		now += o.cfg.Est.Alpha() / 2
		pool.taken.New().Add(1) // of another collective
		pool.Took(now)
		if o.Timer() <= now {
			o.Step(now, step.Event{Kind: step.EvTimer}, nil)
		}
	}
	if o.cr.consumed != 1 {
		t.Errorf("after 100 datagrams, with room for 8, a lost one still occupies its place")
	}
}

// A rank lends the room of the path that receives: that of the kernel if the kernel receives for all
// subgroups, and otherwise that of the receive queues of the process.
func TestCreditFollowsTheReceiver(t *testing.T) {
	const room, kernel, total = 8, 4096, 10_000
	for _, offloaded := range []bool{false, true} {
		here, there := NewPool(room, nil), NewPool(kernel, nil)
		o := New(Config{
			Geometry: oneRound(t, broadcast(2, 0, total, 1, 1)), Rank: 1, Est: NewEstimator(Limits{Alpha: step.Millisecond}),
			Flow: FlowCredit, Pool: here, Offload: there,
		})
		acts := o.Step(1, step.Event{Kind: step.EvStart, Offloaded: offloaded}, nil)
		if len(acts) != 1 || acts[0].Msg.Kind != wire.MsgBarrier {
			t.Fatalf("offloaded %v: %+v", offloaded, acts)
		}
		lender, other, size := here, there, uint64(room)
		if offloaded {
			lender, other, size = there, here, kernel
		}
		if grant := acts[0].Msg.Grant; grant == 0 || grant > size || grant != lender.Lent() || other.Lent() != 0 {
			t.Errorf("offloaded %v: grants %d; lent: %d of %d, and %d by the other",
				offloaded, grant, lender.Lent(), size, other.Lent())
		}
		// The same pool lends consumed places again.
		hear(o, 0, wire.Msg{Kind: wire.MsgBarrier, Round: 1, Grant: 4, Digest: o.g.Digest()})
		for psn := range uint32(total / 2) {
			if _, v, _ := o.Chunk(2, 0, psn, 1, nil); v != Placed {
				t.Fatalf("chunk %d: verdict %d", psn, v)
			}
			if ahead := o.cr.own - min(o.cr.own, o.cr.consumed); ahead > size || other.Lent() != 0 {
				t.Fatalf("offloaded %v: %d places are lent, there is room for %d", offloaded, ahead, size)
			}
		}
		if o.Fail(); here.Lent()+there.Lent() != 0 {
			t.Errorf("offloaded %v: %d places were not returned", offloaded, here.Lent()+there.Lent())
		}
	}
}
