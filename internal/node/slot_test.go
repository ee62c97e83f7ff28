package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
)

// Operation n+2 has the slot of operation n here. It begins only after the fabric has reported that no
// datagram of n can arrive any more.
func TestSlotReuseWaitsForDrained(t *testing.T) {
	c := world(t, 2, psnBits(testConfig(), 31))
	c.hosts[1].drains.Held = true
	jobs := []*job{c.call(0, allgather(2, 9, 4)), c.call(0, allgather(2, 9, 4)), c.call(0, allgather(2, 9, 4))}
	c.RunFor(30 * ms)
	for r, want := range []int{1, 0} {
		if s := jobs[2].shares[r]; len(s.rounds) != want {
			t.Errorf("rank %d: the slot's next user has begun %d rounds, want %d", r, len(s.rounds), want)
		}
	}
	if !c.ended(jobs[0], jobs[1]) {
		t.Error("calls in free slots did not complete")
	}
	c.hosts[1].drains.Held = false
	c.finish()
	c.allRight(jobs...)
}

// Drained counts only for an operation that is closed.
func TestDrainedTooEarlyIsIgnored(t *testing.T) {
	c := world(t, 2, psnBits(patient(testConfig()), 31))
	c.fate = keepOps(0)
	j := c.call(0, allgather(2, 9, 4))
	c.RunFor(ms)
	for _, h := range c.hosts {
		h.node.Drained(c.Now, 0, 0)
		h.node.Drained(c.Now, 0, 2)  // the same slot, not begun
		h.node.Drained(c.Now, 99, 0) // no such communicator
		if h.act() || h.node.comms[0].slots[0] == nil {
			t.Fatalf("rank %d gave a running operation's slot away", h.ID)
		}
	}
	c.release(nil)
	c.finish()
	c.allRight(j)
}

// staleWorld runs one operation until it is closed but not drained, and copies its datagrams to rank 1.
func staleWorld(t *testing.T) (*cluster, []datagram) {
	t.Helper()
	c := world(t, 2, psnBits(testConfig(), 31))
	var copies []datagram
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 1 && d.seq == 0 {
			copies = append(copies, *d)
		}
		return clustertest.Deliver
	}
	c.hosts[1].drains.Held = true
	j := c.call(0, broadcast(2, 0, 10, 4))
	c.Until("a closed operation", func() bool { return c.ended(j) && c.hosts[1].rounds[opKey{0, 0}].closed })
	c.allRight(j)
	if len(copies) != 3 {
		t.Fatalf("%d datagrams, want 3", len(copies))
	}
	return c, copies
}

// counted is the number of datagrams that a node counts as stale or foreign.
func (h *host) counted() uint64 {
	s := h.node.Stats()
	return s.Stale + s.Foreign
}

// replay gives rank 1 datagrams a second time. It must count them, and neither place nor answer them.
func (c *cluster) replay(t *testing.T, when string, copies []datagram) {
	t.Helper()
	h := c.hosts[1]
	for i := range copies {
		before := h.counted()
		if h.chunk(&copies[i]) {
			t.Errorf("%s: a stale chunk was placed", when)
		}
		if h.act() {
			t.Errorf("%s: a stale chunk caused actions", when)
		}
		if got := h.counted() - before; got != 1 {
			t.Errorf("%s: a stale chunk was counted %d times", when, got)
		}
	}
}

func TestStaleChunkOfAClosedOperation(t *testing.T) {
	c, copies := staleWorld(t)
	c.replay(t, "closed", copies)
}

func TestStaleChunkOfADrainedOperation(t *testing.T) {
	c, copies := staleWorld(t)
	c.hosts[1].drains.Held = false
	c.Until("a drained operation", func() bool { return c.hosts[1].rounds[opKey{0, 0}].drained })
	c.replay(t, "drained", copies)
}

// While the next user of the slot waits for Drained, its peers have already entered its barrier. A stale
// chunk must not end up in it.
func TestStaleChunkWhileTheNextUserWaits(t *testing.T) {
	c, copies := staleWorld(t)
	jobs := []*job{c.call(0, broadcast(2, 0, 10, 4)), c.call(0, broadcast(2, 0, 10, 4))}
	c.Until("the slot's next user waiting", func() bool {
		return len(jobs[1].shares[0].rounds) == 1 && jobs[0].shares[1].ended && c.hosts[1].node.comms[0].early.count > 0
	})
	c.replay(t, "the next user waits", copies)
	c.hosts[1].drains.Held = false
	c.finish()
	c.allRight(jobs...)
}

func TestStaleChunkOfAFailedOperation(t *testing.T) {
	c := world(t, 2, patient(testConfig()))
	c.fate = keepOps(0)
	j := c.call(0, broadcast(2, 0, 10, 4))
	c.RunFor(ms)
	c.abort(0, 0)
	c.finish()
	c.allFailed(0, []Reason{Aborted}, j)
	c.replay(t, "failed", c.hosts[1].grams.Kept())
}
