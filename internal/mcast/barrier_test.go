package mcast

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
)

// barrierRun is the barrier of one rank.
type barrierRun struct {
	clustertest.Untimed
	barrier
	entered bool
	inbox   *clustertest.Queue[barrierMsg]
}

type barrierMsg struct {
	from, round int
	grant       uint64
}

func (b *barrierRun) Done() bool     { return b.entered && b.done() }
func (b *barrierRun) String() string { return fmt.Sprintf("entered %v, round %d", b.entered, b.round) }

// barrierCluster is some barriers and the number of messages that they sent.
type barrierCluster struct {
	*clustertest.Cluster
	ranks   []*barrierRun
	lowest  uint64 // grant
	entered int
	sent    int
}

func newBarrierCluster(t *testing.T, seed uint64, size int) *barrierCluster {
	t.Helper()
	c := &barrierCluster{Cluster: clustertest.New(t, seed), lowest: 1000}
	c.Subject = fmt.Sprintf("P=%d", size)
	for r := range size {
		b := &barrierRun{barrier: newBarrier(r, size, c.Rand.Uint64N(1000))}
		c.lowest = min(c.lowest, b.grant)
		c.ranks = append(c.ranks, b)
		at := c.Add(r, b)
		b.inbox = clustertest.NewQueue(c.Cluster, "message", at, r, func(m barrierMsg) {
			if !b.accepts(m.from, m.round) {
				c.Failf("rank %d refuses round %d of rank %d", r, m.round, m.from)
			}
			b.receive(0, m.round, m.grant)
			c.flush(r)
		})
		b.inbox.Held = true
		b.inbox.Faults = clustertest.Faults{Reorder: 1, Duplicate: 1. / 8}
		clustertest.NewQueue(c.Cluster, "enter", at, r, func(struct{}) {
			b.entered, b.inbox.Held = true, false
			c.entered++
			c.flush(r)
		}).Push(struct{}{})
	}
	return c
}

// flush sends the messages of a rank that are due.
func (c *barrierCluster) flush(rank int) {
	b := c.ranks[rank]
	for to, round, ok := b.next(0); ok; to, round, ok = b.next(0) {
		c.ranks[to].inbox.Push(barrierMsg{rank, round, b.grant})
		c.sent++
	}
	if b.done() && c.entered != len(c.ranks) {
		c.Failf("rank %d left when %d had entered", rank, c.entered)
	}
}

// finish checks that all ranks have left and know the lowest grant.
func (c *barrierCluster) finish() {
	for r, b := range c.ranks {
		if !b.Done() || b.grant != c.lowest {
			c.Failf("rank %d: in round %d, knows the grant %d, the lowest is %d", r, b.round, b.grant, c.lowest)
		}
	}
}

// In any order of entering and of delivery, with duplicates: no rank leaves before all have entered,
// every rank leaves, and every rank knows the lowest grant.
func TestBarrierInAnyOrder(t *testing.T) {
	for size := 1; size <= 130; size++ {
		for seed := range uint64(4) {
			c := newBarrierCluster(t, uint64(size)<<8|seed, size)
			c.Drain(1 << 20)
			c.finish()
		}
	}
}

// In lockstep it takes log2 P rounds of messages for a power of two. Otherwise the fold and the release
// take at most two more.
func TestBarrierRounds(t *testing.T) {
	for size := 1; size <= 130; size++ {
		c := newBarrierCluster(t, 1, size)
		c.Round("enter")
		rounds := 0
		for c.Round("message") {
			rounds++
		}
		c.finish()
		log := bits.Len(uint(size)) - 1
		limit := log
		if size != 1<<log {
			limit += 2
		}
		if rounds > limit || rounds < log {
			t.Errorf("P=%d: %d rounds, want %d to %d", size, rounds, log, limit)
		}
		if want := (1<<log)*log + 3*(size-1<<log); c.sent != want { // a folded rank is greeted, enters, and is released
			t.Errorf("P=%d: %d messages, want %d", size, c.sent, want)
		}
	}
}

// A barrier accepts a message only from the partner of its round, and only in the direction of that
// round.
func TestBarrierAcceptsOnlyPartners(t *testing.T) {
	for size := 1; size <= 34; size++ {
		for rank := range size {
			b := newBarrier(rank, size, 0)
			for round := range 256 {
				partners := 0
				for from := range size {
					if !b.accepts(from, round) {
						continue
					}
					partners++
					back := newBarrier(from, size, 0)
					if back.peer(round) != rank || !back.sends(round) || from == rank {
						t.Fatalf("P=%d: rank %d takes round %d from rank %d, which does not send it", size, rank, round, from)
					}
				}
				if partners > 1 || partners == 1 && round > b.last {
					t.Fatalf("P=%d: rank %d has %d partners in round %d", size, rank, partners, round)
				}
			}
		}
	}
}

// A rank that waits for a message has sent one to the rank that it waits for, which may have to answer that it will not
// come.
func TestBarrierGreetsBeforeItWaits(t *testing.T) {
	for size := 2; size <= 34; size++ {
		for rank := range size {
			b, greeted := newBarrier(rank, size, 0), map[int]bool{}
			for !b.done() {
				for to, _, ok := b.next(0); ok; to, _, ok = b.next(0) {
					greeted[to] = true
				}
				if b.done() {
					break
				}
				if peer := b.peer(b.round); !greeted[peer] {
					t.Fatalf("P=%d: rank %d waits in round %d for rank %d, to which it has sent nothing", size, rank, b.round, peer)
				}
				b.receive(0, b.round, 0)
			}
		}
	}
}
