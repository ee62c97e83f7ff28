package mcast

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// barrierRun is P barriers and the messages between them.
type barrierRun struct {
	t       *testing.T
	ranks   []*barrier // nil: not entered yet
	grants  []uint64
	entered int
	wire    []barrierMsg
	sent    int
}

type barrierMsg struct {
	from, to, round int
	grant           uint64
}

func newBarrierRun(t *testing.T, size int, rng *rand.Rand) *barrierRun {
	t.Helper()
	r := &barrierRun{t: t, ranks: make([]*barrier, size)}
	for range size {
		r.grants = append(r.grants, rng.Uint64N(1000))
	}
	return r
}

// enter lets a rank in and sends what it has to say.
func (r *barrierRun) enter(rank int) {
	b := newBarrier(rank, len(r.ranks), r.grants[rank])
	r.ranks[rank] = &b
	r.entered++
	r.flush(rank)
}

func (r *barrierRun) flush(rank int) {
	b := r.ranks[rank]
	for {
		to, round, ok := b.next()
		if !ok {
			break
		}
		r.wire = append(r.wire, barrierMsg{rank, to, round, b.grant})
		r.sent++
	}
	if b.done() && r.entered != len(r.ranks) {
		r.t.Fatalf("P=%d: rank %d left when %d had entered", len(r.ranks), rank, r.entered)
	}
}

func (r *barrierRun) deliver(m barrierMsg) {
	b := r.ranks[m.to]
	if !b.accepts(m.from, m.round) {
		r.t.Fatalf("P=%d: rank %d refuses round %d of rank %d", len(r.ranks), m.to, m.round, m.from)
	}
	b.receive(m.round, m.grant)
	r.flush(m.to)
}

func (r *barrierRun) finish() {
	least := r.grants[0]
	for _, g := range r.grants {
		least = min(least, g)
	}
	for rank, b := range r.ranks {
		if !b.done() {
			r.t.Fatalf("P=%d: rank %d is still in round %d", len(r.ranks), rank, b.round)
		}
		if b.grant != least {
			r.t.Fatalf("P=%d: rank %d heard of %d, the least is %d", len(r.ranks), rank, b.grant, least)
		}
	}
}

// Whatever the order of entering and of delivery, with messages told twice:
// nobody leaves early, everybody leaves, knowing the least grant.
func TestBarrierInAnyOrder(t *testing.T) {
	for size := 1; size <= 130; size++ {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(uint64(size), seed))
			r := newBarrierRun(t, size, rng)
			waiting := rng.Perm(size)
			var held []barrierMsg // for ranks that have not entered
			for len(waiting) > 0 || len(r.wire) > 0 {
				if n := len(waiting); n > 0 && rng.IntN(n+len(r.wire)) < n {
					rank := waiting[n-1]
					waiting = waiting[:n-1]
					r.enter(rank)
					r.wire, held = append(r.wire, held...), nil
					continue
				}
				i := rng.IntN(len(r.wire))
				m := r.wire[i]
				r.wire[i] = r.wire[len(r.wire)-1]
				r.wire = r.wire[:len(r.wire)-1]
				if r.ranks[m.to] == nil {
					held = append(held, m)
					continue
				}
				r.deliver(m)
				if rng.IntN(8) == 0 {
					r.deliver(m)
				}
			}
			r.finish()
		}
	}
}

// In lockstep it takes log2 P rounds of messages for a power of two, and at most
// two more for the fold and the release otherwise.
func TestBarrierRounds(t *testing.T) {
	for size := 1; size <= 130; size++ {
		r := newBarrierRun(t, size, rand.New(rand.NewPCG(1, 1)))
		for rank := range size {
			// They all enter at once: nobody can leave before the last has.
			r.entered = size - 1
			r.enter(rank)
		}
		rounds := 0
		for len(r.wire) > 0 {
			now := r.wire
			r.wire = nil
			for _, m := range now {
				r.deliver(m)
			}
			rounds++
		}
		r.entered = size
		r.finish()
		log := bits.Len(uint(size)) - 1
		most := log
		if size != 1<<log {
			most += 2
		}
		if rounds > most || rounds < log {
			t.Errorf("P=%d: %d rounds, want %d to %d", size, rounds, log, most)
		}
		if want := (1<<log)*log + 2*(size-1<<log); r.sent != want {
			t.Errorf("P=%d: %d messages, want %d", size, r.sent, want)
		}
	}
}

// A message is accepted only from the partner of its round, and only in the
// direction in which that round speaks.
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
						t.Fatalf("P=%d: rank %d takes round %d from rank %d, who does not send it", size, rank, round, from)
					}
				}
				if partners > 1 || partners == 1 && round > b.last {
					t.Fatalf("P=%d: rank %d has %d partners in round %d", size, rank, partners, round)
				}
			}
		}
	}
}
