package node

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

// Some ranks make several calls before others make their first.
func TestEarlyBarrierMessagesAreKept(t *testing.T) {
	for p := 2; p <= 6; p++ {
		for late := range p {
			c := world(t, p, testConfig())
			others := slices.Delete(upTo(p), late, late+1)
			var jobs []*job
			for i := range 4 {
				jobs = append(jobs, c.job(0, allgather(p, int64(5+i), 4)).on(others...))
			}
			c.RunFor(5 * ms)
			n := c.hosts[late].node
			if folded := late >= 1<<(bits.Len(uint(p))-1); n.comms[0].early.count < 4 && !folded { // those are only answered
				t.Fatalf("%d ranks: rank %d keeps %d messages for 4 calls", p, late, n.comms[0].early.count)
			}
			for _, j := range jobs {
				j.on(late)
			}
			c.finish()
			c.allRight(jobs...)
			if co := n.comms[0]; co.early.count != 0 || len(co.early.bySeq) != 0 || n.Stats().Stale != 0 {
				t.Fatalf("%d ranks: rank %d still keeps %d messages, and dropped %d", p, late, co.early.count, n.Stats().Stale)
			}
		}
	}
}

// Messages also come early for calls that were made and wait for their turn or
// for a slot.
func TestEarlyForACallThatWaits(t *testing.T) {
	cfg := psnBits(testConfig(), 30) // four slots, two calls in flight
	c := world(t, 3, cfg)
	c.hosts[0].drains.Held = true
	var jobs []*job
	for range 9 {
		jobs = append(jobs, c.call(0, allgather(3, 5, 4)))
	}
	c.Until("messages for a call whose slot is not free", func() bool {
		return c.hosts[0].node.comms[0].early.count >= 2 &&
			c.ended(jobs[:4]...)
	})
	c.hosts[0].drains.Held = false
	c.finish()
	c.allRight(jobs...)
	for _, h := range c.hosts {
		if n := h.node.comms[0].early.count; n != 0 || h.node.Stats().Stale != 0 {
			t.Errorf("rank %d still keeps %d messages, and dropped %d", h.ID, n, h.node.Stats().Stale)
		}
	}
}

// Only barrier messages can come early: no rank sends others before we have entered.
func TestEarlyOnlyBarriers(t *testing.T) {
	c := world(t, 2, testConfig())
	j := c.call(0, allgather(2, 5, 4))
	c.finish()
	c.allRight(j)
	h := c.hosts[0]
	send := func(m wire.Msg, answered bool) {
		t.Helper()
		stale := h.node.Stats().Stale
		h.node.Message(c.Now, 1, &m)
		if h.act() != answered || h.node.comms[0].early.count != 0 || h.node.Stats().Stale != stale+1 {
			t.Errorf("message %+v: kept %d, stale %d", m, h.node.comms[0].early.count, h.node.Stats().Stale-stale)
		}
	}
	for kind := wire.MsgActivate; kind <= wire.MsgMark; kind++ {
		send(wire.Msg{Kind: kind, Seq: 1}, false)
		send(wire.Msg{Kind: kind, Seq: 0}, false)
	}
	send(wire.Msg{Kind: wire.MsgActivate, Comm: 5, Seq: 1}, false)
	send(wire.Msg{Kind: wire.MsgBarrier, Comm: 5, Seq: 1}, true) // its sender learns that this rank does not take part
	send(wire.Msg{Kind: wire.MsgProbeWait, Comm: 5}, true)
	c.finish()
}

// A rank keeps no message for the past. A peer that enters a barrier which we left long ago, or one whose
// number no call gets, made other calls.
func TestEarlyNothingForThePast(t *testing.T) {
	for _, seq := range []uint64{0, 1<<64 - 1} {
		c := world(t, 2, testConfig())
		j := c.call(0, allgather(2, 5, 4))
		c.finish()
		c.allRight(j)
		h := c.hosts[0]
		h.node.Message(c.Now, 1, &wire.Msg{Kind: wire.MsgBarrier, Seq: seq})
		h.act()
		co := h.node.comms[0]
		if co.early.count != 0 || (co.broken == nil && h.node.Stats().Stale != 1) {
			t.Errorf("barrier %d: kept %d, stale %d", seq, co.early.count, h.node.Stats().Stale)
		}
		if co.broken != nil && (co.broken.reason != Mismatch || co.broken.culprit != 1) {
			t.Errorf("barrier %d: %+v", seq, *co.broken)
		}
	}
}

// A member of the world is not yet a member of a communicator.
func TestEarlyFromAStranger(t *testing.T) {
	c := newCluster(t, 3, testConfig())
	c.comm(4, 1, 0)
	h := c.hosts[0]
	for _, kind := range []wire.MsgKind{wire.MsgBarrier, wire.MsgAbort, wire.MsgProbeWait, wire.MsgWaitState} {
		stale := h.node.Stats().Stale
		h.node.Message(c.Now, 2, &wire.Msg{Kind: kind, Comm: 4, Reason: uint8(Aborted)})
		if h.act() || h.node.comms[4].early.count != 0 || h.node.comms[4].broken != nil || h.node.Stats().Stale != stale+1 {
			t.Errorf("message kind %d of a stranger had an effect", kind)
		}
	}
}

// The number of kept messages is bounded: a peer that exceeds it is at fault.
func TestEarlyIsBounded(t *testing.T) {
	c := world(t, 3, testConfig())
	h := c.hosts[0]
	running := c.job(0, allgather(3, 5, 4)).on(0)
	m := wire.Msg{Kind: wire.MsgBarrier}
	for sent := 0; h.node.comms[0].broken == nil; sent++ {
		if sent > maxEarly {
			t.Fatalf("%d messages are kept", sent)
		}
		m.Seq = 1 + uint64(sent)%100 // calls it may well have under way
		h.node.Message(c.Now, 2, &m)
	}
	h.act()
	c.finish()
	later := c.call(0, allgather(3, 5, 4))
	c.finish()
	c.allFailed(2, []Reason{Protocol}, running, later)
}

// The rank that sent too much is at fault, not the next one to send.
func TestEarlyFloodBlamesTheFlooder(t *testing.T) {
	c := world(t, 3, testConfig())
	h := c.hosts[0]
	m := wire.Msg{Kind: wire.MsgBarrier, Seq: 5}
	for i := range maxEarly {
		m.Seq = 6 + uint64(i)%100
		h.node.Message(c.Now, 2, &m)
	}
	h.act()
	j := c.job(0, allgather(3, 5, 4)).on(1, 2) // which sends rank 0 its barrier messages
	c.RunFor(ms)
	j.on(0)
	c.Until("the end", func() bool { return c.ended(j) })
	for r, s := range j.shares {
		if s.err != nil && (s.err.Reason != Protocol || s.err.Culprit != 2) {
			t.Errorf("rank %d: %v", r, s.err)
		}
	}
}
