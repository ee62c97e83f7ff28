package p2p_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A cluster runs the Executors of all ranks in memory, one event at a time. What a
// rank sends another arrives in order; between pairs, and between messages and
// data, anything goes. A send is read when it departs, which may be long after
// the Executor handed it over, and the Executor hears of it later still.
type cluster[T any] struct {
	rng   *rand.Rand
	pick  picker
	plans []*p2p.Plan
	ops   []*p2p.Executor
	in    []*p2p.Inbox
	bufs  [][]T
	add   func(have, came T) T
	loose bool // pieces between two ranks overtake each other

	now    step.Time
	todo   []event
	msgs   [][]wire.Msg    // by pair: messages on their way
	handed [][]step.Action // by pair: puts handed over
	flight [][]flying[T]   // by pair: puts on their way
	held   map[[2]int][]T  // rank, receive: pieces that came before their turn
	sent   []uint32        // by rank: departures that the Executor has not heard of

	started, frozen, complete, closed []bool

	results    [][]T
	mismatches []step.Action
	early      int // ranks that completed before all had started
	errs       []error
}

type flying[T any] struct {
	nth  uint32
	data []T
}

type event struct {
	kind eventKind
	a, b int // from, to
}

type eventKind uint8

const (
	start eventKind = iota
	message
	depart
	arrive
	heard
)

// actor is the rank at which it happens. A send departs even if nobody will ever
// take it.
func (e event) actor() int {
	if e.kind == message || e.kind == arrive {
		return e.b
	}
	return e.a
}

// A picker chooses which of the pending events comes next.
type picker func(rng *rand.Rand, todo []event) int

func newCluster[T any](seed uint64, plans []*p2p.Plan, bufs [][]T, add func(have, came T) T) *cluster[T] {
	p := len(plans)
	c := &cluster[T]{
		rng: rand.New(rand.NewPCG(seed, 0)), plans: plans, bufs: bufs, add: add,
		msgs: make([][]wire.Msg, p*p), handed: make([][]step.Action, p*p), flight: make([][]flying[T], p*p),
		sent: make([]uint32, p), started: make([]bool, p), frozen: make([]bool, p), complete: make([]bool, p), closed: make([]bool, p),
		results: make([][]T, p),
	}
	c.pick = schedules[c.rng.IntN(len(schedules))].pick(c.rng, p)
	for r, plan := range plans {
		c.ops = append(c.ops, p2p.NewExecutor(p2p.Config{Plan: plan, Comm: 3, Seq: 7}))
		c.in = append(c.in, p2p.NewInbox(plan))
		c.todo = append(c.todo, event{start, r, r})
	}
	return c
}

// run goes on until nothing is left to happen, or for at most so many events.
func (c *cluster[T]) run(most int) {
	for ; most > 0 && len(c.todo) > 0; most-- {
		i := c.pick(c.rng, c.todo)
		ev := c.todo[i]
		c.todo[i] = c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		if c.frozen[ev.actor()] {
			continue
		}
		c.now++
		c.step(ev)
	}
}

func (c *cluster[T]) step(ev event) {
	pair := ev.a*len(c.ops) + ev.b
	switch ev.kind {
	case start:
		c.started[ev.a] = true
		c.act(ev.a, c.ops[ev.a].Step(c.now, step.Event{Kind: step.EvStart}, nil))
	case message:
		m := take(&c.msgs[pair], 0)
		c.act(ev.b, c.ops[ev.b].Step(c.now, step.Event{Kind: step.EvMsg, From: ev.a, Msg: &m}, nil))
	case depart:
		put := take(&c.handed[pair], 0)
		if c.complete[ev.a] {
			c.failf("rank %d sent from a buffer that was free", ev.a)
			return
		}
		c.flight[pair] = append(c.flight[pair], flying[T]{put.PSN, slices.Clone(c.bufs[ev.a][put.Off : put.Off+put.Len])})
		c.sent[ev.a]++
		c.todo = append(c.todo, event{arrive, ev.a, ev.b}, event{heard, ev.a, ev.a})
	case arrive:
		at := 0
		if c.loose {
			at = c.rng.IntN(len(c.flight[pair]))
		}
		c.arrives(ev.a, ev.b, take(&c.flight[pair], at))
	case heard:
		// Several departures may be told at once; then some of these events find nothing to tell.
		if n := c.sent[ev.a]; n > 0 {
			n -= c.rng.Uint32N(n)
			c.sent[ev.a] -= n
			c.act(ev.a, c.ops[ev.a].Step(c.now, step.Event{Kind: step.EvSent, N: n}, nil))
		}
	}
}

func (c *cluster[T]) arrives(from, to int, f flying[T]) {
	if c.complete[to] {
		c.failf("rank %d got data after its buffer was free", to)
		return
	}
	recvs := c.plans[to].Recvs
	acts, ok := deliver(c.ops[to], c.in[to], c.now, from, f.nth, int64(len(f.data)), func(i int, r *p2p.Recv, hold bool) {
		switch {
		case *r != recvs[i] || int(r.From) != from:
			c.failf("rank %d took piece %d of rank %d, %d long, as %+v", to, f.nth, from, len(f.data), *r)
		case hold:
			if c.held == nil {
				c.held = map[[2]int][]T{}
			}
			c.held[[2]int{to, i}] = f.data
		default:
			c.place(to, r.Off, f.data, r.Reduce)
		}
	}, func(i int) {
		data, held := c.held[[2]int{to, i}]
		if !held || int64(len(data)) != recvs[i].Len {
			c.failf("rank %d applies receive %d, which it does not hold", to, i)
			return
		}
		delete(c.held, [2]int{to, i})
		c.place(to, recvs[i].Off, data, true)
	})
	if !ok {
		c.failf("rank %d did not take piece %d of rank %d, %d long", to, f.nth, from, len(f.data))
	}
	c.act(to, acts)
}

func (c *cluster[T]) place(to int, off int64, data []T, reduce bool) {
	buf := c.bufs[to][off : off+int64(len(data))]
	if !reduce {
		copy(buf, data)
		return
	}
	for i, x := range data {
		buf[i] = c.add(buf[i], x)
	}
}

func (c *cluster[T]) act(rank int, acts []step.Action) {
	for _, a := range acts {
		pair := rank*len(c.ops) + a.To
		switch a.Kind {
		case step.ActSend:
			c.msgs[pair] = append(c.msgs[pair], a.Msg)
			c.todo = append(c.todo, event{message, rank, a.To})
		case step.ActPut:
			c.handed[pair] = append(c.handed[pair], a)
			c.todo = append(c.todo, event{depart, rank, a.To})
		case step.ActMismatch:
			c.mismatches = append(c.mismatches, a)
		case step.ActComplete:
			if c.complete[rank] || c.closed[rank] {
				c.failf("rank %d completed twice", rank)
			}
			c.complete[rank] = true
			if slices.Contains(c.started, false) {
				c.early++
			}
			c.results[rank] = c.bufs[rank]
		case step.ActClosed:
			if !c.complete[rank] || c.closed[rank] {
				c.failf("rank %d closed twice, or before it completed", rank)
			}
			c.closed[rank] = true
		default:
			c.failf("rank %d: action %d is not one of ours", rank, a.Kind)
		}
	}
}

// check says what is wrong with a run that ought to have gone well.
func (c *cluster[T]) check() error {
	for _, m := range c.mismatches {
		c.failf("a mismatch with rank %d: %+v", m.To, m.Msg.Call)
	}
	for r, op := range c.ops {
		if !c.complete[r] || !c.closed[r] || op.Phase() != step.Closed {
			c.failf("rank %d does not end: it is %v, waits for rank %d and misses %s", r, op.Phase(), op.WaitingOn(), op.Missing(nil))
		}
		if f := c.in[r].Foreign(); f != 0 {
			c.failf("rank %d counts %d foreign pieces", r, f)
		}
	}
	if len(c.errs) > 0 {
		return c.errs[0]
	}
	return nil
}

func (c *cluster[T]) failf(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

func take[T any](queue *[]T, i int) T {
	x := (*queue)[i]
	*queue = slices.Delete(*queue, i, i+1)
	return x
}
