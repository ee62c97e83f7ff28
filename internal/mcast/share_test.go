package mcast

import (
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// besideARing returns a Collective of four chains that has left the barrier, beside an operation that
// waits for a piece.
func besideARing(t *testing.T, others *Others) *Collective {
	t.Helper()
	const chunk = 1000
	o := started(t, allgather(4, 64*chunk, chunk, 4, 1), 0, Config{Batch: 16, Others: others})
	o.cfg.Est = NewEstimator(Limits{})
	o.phase, o.snd.active = step.Multicast, true
	return o
}

// sendAllAt lets a Collective send what it may send at a time, and completes its sends.
func sendAllAt(o *Collective, now step.Time, acts []step.Action) (sent uint32) {
	for n := multicasts(acts); n > 0; n = multicasts(acts) {
		sent += n
		acts = o.Step(now, step.Event{Kind: step.EvSent, N: n}, nil)
	}
	return sent
}

// Beside a ring, a sender waits for arrivals. It goes on as soon as the ring has ended.
func TestWindowBesideARing(t *testing.T) {
	others := &Others{}
	others.Start(1<<20, 1<<18)
	o := besideARing(t, others)
	first := sendAllAt(o, 1, o.pump(1, nil))
	if first == 0 || first >= minWindow || !o.snd.share.held {
		t.Fatalf("%d chunks sent at once, held %v; the window is %d places of all ranks", first, o.snd.share.held, minWindow)
	}
	if o.Timer() <= 1 {
		t.Fatalf("a held sender wants a timer at %d, when nothing has changed", o.Timer())
	}
	var arrived uint32
	for _, rank := range []int{1, 2, 3} {
		psn, _ := o.g.Block(0, rank)
		arrived += sendAllAt(o, 2, o.Placed(2, 0, wire.Range{PSN: psn, N: 4}, nil))
	}
	if arrived < 2 || arrived > 8 {
		t.Errorf("%d chunks sent when 12 of three other ranks had arrived", arrived)
	}
	others.End(1 << 20)
	if o.Timer() > 2 {
		t.Errorf("the ring has ended, but the sender waits until %d", o.Timer())
	}
	sendAllAt(o, 3, o.Step(3, step.Event{Kind: step.EvTimer}, nil))
	if !o.snd.finished() {
		t.Errorf("%d of %d chunks sent after the ring", o.snd.done, o.snd.total)
	}
}

// A Collective that has received less than the ring beside it gets a larger window.
func TestWindowGrowsWithTheLag(t *testing.T) {
	const piece = 32 << 10
	others := &Others{}
	others.Start(64*piece, piece)
	o := besideARing(t, others)
	sent := sendAllAt(o, 1, o.pump(1, nil))
	before := o.snd.share.window
	for i := range int64(8) {
		others.Receive(step.Time(10+i), piece, (63-i)*piece, piece)
	}
	psn, _ := o.g.Block(0, 1)
	sent += sendAllAt(o, 20, o.Placed(20, 0, wire.Range{PSN: psn, N: 1}, nil))
	if limit := uint64(minWindow + maxExtra*piece/1000); o.snd.share.window <= before || o.snd.share.window > limit {
		t.Errorf("the window grew from %d to %d chunks; want more, up to %d", before, o.snd.share.window, limit)
	}
	if sent < 8 {
		t.Errorf("%d chunks sent, although the ring is 8 pieces ahead", sent)
	}
}

// If chunks were lost and nothing arrives, the window does not stop a sender for good.
func TestWindowWithoutProgress(t *testing.T) {
	others := &Others{}
	others.Start(1<<20, 1<<20)
	o := besideARing(t, others)
	sendAllAt(o, 1, o.pump(1, nil))
	now := step.Time(1)
	for last, steps := step.Time(0), 0; !o.snd.finished(); steps++ {
		at := o.shareAt()
		if at <= now || steps > 64 {
			t.Fatalf("at %d: the next chunk is due at %d, after %d chunks", now, at, steps)
		}
		if steps > 0 && steps < 20 && at-now < last {
			t.Errorf("the sender waits %d after %d without progress, less than before", at-now, last)
		}
		last, now = at-now, at
		if n := sendAllAt(o, now, o.Step(now, step.Event{Kind: step.EvTimer}, nil)); n == 0 {
			t.Fatalf("at %d nothing was sent, although no chunk has arrived for that long", now)
		}
	}
}

// Each of two operations has received half of what arrived for both.
func TestOthersShare(t *testing.T) {
	var others Others
	others.Start(1000, 500)
	others.Start(1000, 500)
	others.Start(0, 0) // a barrier
	if others.InFlight() != 3 || others.receiving != 2 {
		t.Fatalf("%d in flight, %d receive; want 3 and 2", others.InFlight(), others.receiving)
	}
	others.Receive(100, 500, 500, 500)
	others.Receive(200, 500, 500, 500)
	if got := others.received(200); got != 500 {
		t.Errorf("each has received %v bytes, want 500", got)
	}
	if got := others.received(1e6); got != 750 {
		t.Errorf("with the next piece each has received %v bytes, want 750", got)
	}
	others.Receive(300, 500, 0, 0)
	others.End(0)
	others.End(500)
	others.End(0)
	if others.InFlight() != 0 || others.receiving != 0 {
		t.Errorf("%d in flight, %d receive after all have ended", others.InFlight(), others.receiving)
	}
}
