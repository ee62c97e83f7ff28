package mcast

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// multicasts adds up the chunks of all multicasts.
func multicasts(acts []step.Action) (n uint32) {
	for _, a := range acts {
		if a.Kind == step.ActMulticast {
			n += a.N
		}
	}
	return n
}

func kinds(acts []step.Action) (list []wire.MsgKind) {
	for _, a := range acts {
		if a.Kind == step.ActSend {
			list = append(list, a.Msg.Kind)
		}
	}
	return list
}

// With M roots active, each paces itself at B/M.
func TestPacing(t *testing.T) {
	const chunk, overhead, m = 900, 100, 3
	o := started(t, allgather(6, 8*chunk, chunk, m, 1), 0, Config{Batch: 2, Overhead: overhead})
	o.cfg.Est = NewEstimator(Limits{LinkRate: 1})
	o.phase, o.snd.active = step.Multicast, true
	now := step.Time(500)
	for left := uint32(8); left > 0; {
		n := multicasts(o.Step(now, step.Event{Kind: step.EvTimer}, nil))
		if n < 1 || n > 2 {
			t.Fatalf("at %d: %d chunks, a batch is 2 at most", now, n)
		}
		if more := multicasts(o.Step(now, step.Event{Kind: step.EvSent, N: n}, nil)); more != 0 {
			t.Fatalf("at %d: %d more chunks at once", now, more)
		}
		now += step.Time(n) * (chunk + overhead) * m
		if left -= n; left > 0 && (o.snd.nextAt != now || o.Timer() > now) {
			t.Fatalf("the next batch is due at %d, want %d", o.snd.nextAt, now)
		}
	}
}

// A single root is held back by nothing but the fabric's queue.
func TestOneRootIsNotPaced(t *testing.T) {
	_, sends := sendAll(t, broadcast(2, 0, 100, 1, 1))
	if n := multicasts(sends); n != 100 {
		t.Errorf("%d of 100 sent", n)
	}
}

// Batches go round the subgroups, so that all trees are used at once.
func TestSubgroupsTakeTurns(t *testing.T) {
	_, sends := sendAll(t, broadcast(2, 0, 96, 1, 3))
	var subs []int
	for _, a := range sends {
		subs = append(subs, a.Stream)
	}
	if want := []int{0, 1, 2, 0, 1, 2}; !slices.Equal(subs, want) {
		t.Errorf("subgroups %v, want %v", subs, want)
	}
}

// The successor is activated early enough to hide the latency of the message,
// and told when the block has really left.
func TestActivationLead(t *testing.T) {
	const chunk = 1000
	o := started(t, allgather(3, 10*chunk, chunk, 1, 1), 0, Config{Batch: 4})
	o.cfg.Est = NewEstimator(Limits{LinkRate: 1})
	o.cfg.Est.Latency(3 * chunk)
	o.phase, o.snd.active = step.Multicast, true
	o.Step(1, step.Event{Kind: step.EvTimer}, nil)
	for sent := uint32(1); sent <= 10; sent++ {
		got := kinds(o.Step(1, step.Event{Kind: step.EvSent, N: 1}, nil))
		var want []wire.MsgKind
		switch sent {
		case 7:
			want = []wire.MsgKind{wire.MsgActivate}
		case 10:
			want = []wire.MsgKind{wire.MsgChainSent}
		}
		if !slices.Equal(slices.DeleteFunc(got, func(k wire.MsgKind) bool {
			return k == wire.MsgSentUp ||
				k == wire.MsgAllSent
		}), want) {
			t.Errorf("after %d of 10: %v, want %v", sent, got, want)
		}
	}
}

// A rank that was activated early passes the turn on only when those before it
// have finished, even if it has finished itself.
func TestTurnIsNotPassedTooEarly(t *testing.T) {
	o := paperOp(t, allgather(4, 8, 8, 1, 1), 1)
	if got := multicasts(hear(o, 0, wire.Msg{Kind: wire.MsgActivate})); got != 1 {
		t.Fatalf("%d chunks on activation", got)
	}
	if got := kinds(o.Step(1, step.Event{Kind: step.EvSent, N: 1}, nil)); slices.Contains(got, wire.MsgActivate) ||
		slices.Contains(got, wire.MsgChainSent) {
		t.Errorf("rank 0 may still be sending: %v", got)
	}
	if got := kinds(hear(o, 0, wire.Msg{Kind: wire.MsgChainSent})); !slices.Equal(got, []wire.MsgKind{wire.MsgChainSent}) {
		t.Errorf("rank 0 has finished: %v", got)
	}
}
