package clustertest

import (
	"fmt"

	"github.com/allcast/allcast/internal/step"
)

// Fate is what becomes of an event that enters a queue.
type Fate uint8

// Fates.
const (
	Deliver Fate = iota
	Lose
	Keep // until the queue is told to release it
)

// Faults are the probabilities with which a queue loses, duplicates and reorders events.
type Faults struct{ Loss, Duplicate, Reorder float64 }

// Pending is an Order's view of a Queue.
type Pending struct {
	Kind   string
	At     *Rank
	From   int         // peer, where the kind of event has one
	Held   bool        // whether its events wait
	Ready  func() bool // when set: whether the next event may happen
	Faults Faults
	Since  step.Time // when the queue became non-empty or lost its last event

	c      *Cluster
	stamps []stamp // of the events, oldest first
	index  int     // in ready, if there are events
	queue  interface {
		happen()
		clear()
	}
}

type stamp struct {
	serial uint64
	at     step.Time
}

// A Queue holds pending events of one kind at one rank, in the order in which they came.
type Queue[E any] struct {
	Pending
	Fate  func(E) Fate // when set: decides about each event that comes
	Do    func(E)
	items []E
	kept  []E
}

// NewQueue returns an empty queue of a rank.
func NewQueue[E any](c *Cluster, kind string, at *Rank, from int, do func(E)) *Queue[E] {
	q := &Queue[E]{Pending: Pending{Kind: kind, At: at, From: from, c: c}, Do: do}
	q.queue = q
	return q
}

func (p *Pending) String() string {
	if p.From == p.At.ID {
		return fmt.Sprintf("%s at rank %d", p.Kind, p.At.ID)
	}
	return fmt.Sprintf("%s at rank %d from %d", p.Kind, p.At.ID, p.From)
}

func (p *Pending) happen() { p.queue.happen() }
func (p *Pending) clear()  { p.queue.clear() }

func (p *Pending) enabled() bool {
	return !p.Held && !p.At.Stopped && (p.Ready == nil || p.Ready())
}

// Len is the number of events that are pending.
func (p *Pending) Len() int { return len(p.stamps) }

// Push adds an event, unless it is lost or kept, or the rank is dead.
func (q *Queue[E]) Push(e E) {
	if q.Faults.Loss > 0 && q.c.Rand.Float64() < q.Faults.Loss {
		return
	}
	if q.Fate != nil {
		switch q.Fate(e) {
		case Lose:
			return
		case Keep:
			q.kept = append(q.kept, e)
			return
		case Deliver:
		}
	}
	q.push(e)
}

func (q *Queue[E]) push(e E) {
	if q.At.Dead {
		return
	}
	c := q.c
	if len(q.items) == 0 {
		q.index, q.Since = len(c.ready), c.Now
		c.ready = append(c.ready, &q.Pending)
	}
	c.serial++
	q.stamps = append(q.stamps, stamp{c.serial, c.Now})
	q.items = append(q.items, e)
}

// Take removes the i-th event without letting it happen.
func (q *Queue[E]) Take(i int) E {
	c, e := q.c, q.items[i]
	q.Since = c.Now
	copy(q.items[i:], q.items[i+1:])
	copy(q.stamps[i:], q.stamps[i+1:])
	last := len(q.items) - 1
	clear(q.items[last:])
	q.items, q.stamps = q.items[:last], q.stamps[:last]
	if last == 0 {
		end := len(c.ready) - 1
		c.ready[q.index] = c.ready[end]
		c.ready[q.index].index = q.index
		c.ready = c.ready[:end]
	}
	return e
}

// Truncate forgets all events but the first n.
func (q *Queue[E]) Truncate(n int) {
	for len(q.items) > n {
		q.Take(len(q.items) - 1)
	}
}

func (q *Queue[E]) clear() { q.Truncate(0) }

// Items are the pending events, oldest first.
func (q *Queue[E]) Items() []E { return q.items }

// Kept are the events that Fate kept back.
func (q *Queue[E]) Kept() []E { return q.kept }

// Forget drops the events that Fate kept back.
func (q *Queue[E]) Forget() { q.kept = nil }

// Release lets kept events go on: all, or those that a test picks.
func (q *Queue[E]) Release(which func(E) bool) {
	kept := q.kept
	q.kept = nil
	for _, e := range kept {
		if which == nil || which(e) {
			q.push(e)
		} else {
			q.kept = append(q.kept, e)
		}
	}
}

func (q *Queue[E]) happen() {
	i, f := 0, &q.Faults
	if f.Reorder > 0 && q.c.Rand.Float64() < f.Reorder {
		i = q.c.Rand.IntN(len(q.items))
	}
	e := q.Take(i)
	if f.Duplicate > 0 && q.c.Rand.Float64() < f.Duplicate {
		q.push(e)
	}
	q.Do(e)
}
