package node

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/wire"
)

// keepOps keeps the datagrams of some operations of communicator 0.
func keepOps(seqs ...uint64) func(int, *datagram) clustertest.Fate {
	return func(_ int, d *datagram) clustertest.Fate {
		if d.comm == 0 && slices.Contains(seqs, d.seq) {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
}

// order is the order in which calls ended on a rank.
func (c *cluster) order(rank int) (reqs []uint64) {
	for _, e := range c.ends {
		if e.rank == rank {
			reqs = append(reqs, e.req)
		}
	}
	return reqs
}

func TestCallsFinishInAnotherOrder(t *testing.T) {
	c := world(t, 3, patient(testConfig()))
	c.fate = keepOps(0, 2)
	var jobs []*job
	for range 4 {
		jobs = append(jobs, c.call(0, allgather(3, 10, 4)))
	}
	c.Until("calls 1 and 3", func() bool { return c.ended(jobs[1], jobs[3]) })
	c.release(func(d datagram) bool { return d.seq == 2 })
	c.Until("call 2", func() bool { return c.ended(jobs[2]) })
	c.release(nil)
	c.finish()
	c.allRight(jobs...)
	for r := range 3 {
		if got := c.order(r); !slices.Equal(got, []uint64{1, 3, 2, 0}) && !slices.Equal(got, []uint64{3, 1, 2, 0}) {
			t.Errorf("rank %d: finished in the order %v", r, got)
		}
	}
}

// A call that is stuck takes one place in flight; the others use the rest. The cluster checks at every
// Open that at most InFlight calls run, and always the oldest.
func TestInFlight(t *testing.T) {
	for _, stuck := range [][]uint64{{0}, {3}, {0, 1}, {0, 1, 2}} {
		cfg := patient(testConfig())
		cfg.InFlight = 3
		c := world(t, 3, cfg)
		c.fate = keepOps(stuck...)
		var jobs []*job
		for range 8 {
			jobs = append(jobs, c.call(0, allgather(3, 9, 4)))
		}
		c.RunFor(20 * ms)
		for i, j := range jobs {
			want := len(stuck) < cfg.InFlight && !slices.Contains(stuck, uint64(i))
			for r, s := range j.shares {
				if s.ended != want {
					t.Errorf("stuck %v: call %d on rank %d: ended %v", stuck, i, r, s.ended)
				}
				if begun := len(s.rounds) > 0; begun != (want || slices.Contains(stuck, uint64(i))) {
					t.Errorf("stuck %v: call %d on rank %d: begun %v", stuck, i, r, begun)
				}
			}
		}
		c.fate = nil
		c.release(nil)
		c.finish()
		c.allRight(jobs...)
	}
}

// Half of the slots stay free for operations that linger or drain.
func TestInFlightIsAtMostHalfTheSlots(t *testing.T) {
	for _, tc := range []struct{ bits, asked, want int }{
		{31, 5, 1}, {30, 5, 2}, {29, 5, 4}, {28, 5, 5}, {24, 1000, 128}, {4, 1000, 512}, {4, 0, 16}, {24, -1, 16},
	} {
		cfg := psnBits(testConfig(), tc.bits)
		cfg.Size, cfg.InFlight = 1, tc.asked
		if got := New(0, cfg).cfg.InFlight; got != tc.want {
			t.Errorf("%d PSN bits, %d asked for: %d in flight, want %d", tc.bits, tc.asked, got, tc.want)
		}
	}
}

// The n-th call on a communicator is the same operation on all ranks, whenever the ranks make their
// calls, in any order between communicators. The cluster checks the numbers at every Open and the data at
// every Done.
func TestIdentityIsCallOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		c := newCluster(t, 4, testConfig())
		c.randomly(seed, clustertest.Faults{})
		c.comm(7, 0, 1, 2, 3)
		c.comm(3, 3, 1)
		c.comm(5, 2, 0, 3)
		for i := range 12 {
			id := []uint32{7, 3, 5}[i%3]
			p := len(c.comms[id])
			shape := allgather(p, int64(1+i), 3)
			if i%2 == 0 {
				shape = broadcast(p, i%p, int64(20*i), 3)
			}
			j := c.job(id, shape)
			for _, m := range c.comms[id] {
				c.hosts[m].later(j)
			}
		}
		c.finish()
		c.allRight(c.jobs...)
	}
}

// A call of several rounds runs them one after the other (checked at every
// Open), and does not hold up those behind it.
func TestRoundsOneAfterTheOther(t *testing.T) {
	c := world(t, 3, psnBits(testConfig(), 4))
	large := c.call(0, allgather(3, 5*7*4, 4)) // 16 PSNs hold 5 chunks of each rank
	small := []*job{c.call(0, broadcast(3, 2, 11, 4)), c.call(0, allgather(3, 3, 4)), c.call(0, broadcast(3, 0, 64, 4))}
	last := c.call(0, allgather(3, 2*5*4, 4))
	c.finish()
	c.allRight(c.jobs...)
	if n := len(large.geos); n != 7 {
		t.Fatalf("%d rounds, want 7", n)
	}
	for r := range 3 {
		if got := c.order(r); !slices.Equal(got[3:], []uint64{last.req, large.req}) {
			t.Errorf("rank %d: finished in the order %v", r, got)
		}
		if s := small[0].shares[r]; s.seq != 7 {
			t.Errorf("rank %d: the call behind seven rounds has number %d", r, s.seq)
		}
	}
}

// The same with rounds that lose datagrams and meet at random.
func TestRoundsAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		c := world(t, 4, psnBits(testConfig(), 4))
		c.randomly(seed, clustertest.Faults{Loss: 0.1, Duplicate: 0.1})
		for i := range 6 {
			j := c.job(0, allgather(4, int64(i*i*13), 3))
			for r := range 4 {
				c.hosts[r].later(j)
			}
		}
		c.finish()
		c.allRight(c.jobs...)
	}
}

// TestRoundsBehindASlotsLaterUser: rank 0 announces round 1 of A while B could have its slot on rank 1.
// Rank 1 must not take the message for one of the past.
func TestRoundsBehindASlotsLaterUser(t *testing.T) {
	c, a, b := wrapAround(t)
	b.on(0, 1)
	c.hosts[1].drains.Held = true
	c.RunFor(5 * ms) // rank 0 gets as far as it can; on rank 1 nothing is drained
	c.hosts[1].drains.Held = false
	c.Until("the end of a call of 1025 rounds", func() bool { return c.ended(a, b) })
	c.allRight(a, b)
}

// TestRoundsMeetInASlot: rank 0 could have B in slot 1 while rank 1 has round 1 of A there. Each would
// wait for the other to leave the slot.
func TestRoundsMeetInASlot(t *testing.T) {
	c, a, b := wrapAround(t)
	b.on(0)
	c.Until("round 1 of A on rank 1", func() bool { return len(a.shares[1].rounds) == 2 })
	b.on(1)
	c.Until("the end of a call of 1025 rounds", func() bool { return c.ended(a, b) })
	c.allRight(a, b)
}

// wrapAround makes a call A of more rounds than there are slots on two ranks, and plans a call B behind
// it. The slot of B, 1, is also that of round 1 of A. The users of a slot must come in the order of their
// numbers on all ranks.
func wrapAround(t *testing.T) (c *cluster, a, b *job) {
	t.Helper()
	cfg := psnBits(testConfig(), wire.MinPSNBits)
	cfg.Timeout = 0 // so that a deadlock shows at once
	c = world(t, 2, cfg)
	a = c.call(0, broadcast(2, 0, 1025*16, 1))
	if len(a.geos) != 1025 || cfg.Layout.Slot(1025) != 1 {
		t.Fatalf("%d rounds, slot %d", len(a.geos), cfg.Layout.Slot(1025))
	}
	return c, a, c.job(0, broadcast(2, 0, 8, 1))
}
