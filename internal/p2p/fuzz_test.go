package p2p_test

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// tape hands out the bytes of a fuzzer's input, then zeros.
type tape struct{ data []byte }

func (t *tape) next() int {
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return int(b)
}

func (t *tape) call() call {
	kind := kinds[t.next()%len(kinds)]
	algos := p2p.Algorithms(kind)
	c := call{algos[t.next()%len(algos)], p2p.Spec{
		Kind: kind, Size: 1 + t.next()%20, Segment: int64(t.next() % 8), Radix: 2 + t.next()%4,
	}}
	c.Rank = t.next() % c.Size
	c.Root = t.next() % c.Size
	return c.sized(int64(t.next() % 32))
}

// FuzzOpData feeds an Executor with messages and data in any order, right and wrong
// ones. It must take exactly what a plain account of the plan says, complete
// when all is there and gone, and not before.
func FuzzOpData(f *testing.F) {
	for kind := range byte(len(kinds)) {
		for algo := range byte(5) {
			f.Add([]byte{
				kind, algo, 6, 3, 1, 2, 1, 20, 0, 1, 3, 4, 1, 3, 5, 2, 2, 3, 3, 4, 2, 4, 3, 0, 0, 3, 3, 0, 1, 3, 4, 0, 2,
			})
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &tape{data}
		c := in.call()
		a := newAccount(t, c)
		for steps := 0; len(in.data) > 0 && steps < 300; steps++ {
			switch in.next() % 8 {
			case 0:
				if !a.started {
					a.started = true
					a.did(a.op.Step(1, step.Event{Kind: step.EvStart}, nil))
				}
			case 1, 2:
				a.message(in.next()%(c.Size+1), in.next()%4 == 3)
			case 3:
				if n := a.flying; n > 0 {
					n = 1 + in.next()%n
					a.flying -= n
					a.did(a.op.Step(1, step.Event{Kind: step.EvSent, N: uint32(n)}, nil))
				}
			default:
				a.data(in.next()%(c.Size+2)-1, uint32(in.next()%32), in)
			}
		}
	})
}

// account is what we know about an Executor without looking into it.
type account struct {
	t       *testing.T
	c       call
	plan    *p2p.Plan
	op      *p2p.Executor
	in      *p2p.Inbox
	started bool
	got     map[int]bool // by receive
	ready   map[int]bool // by peer
	sends   int
	flying  int
	foreign uint64
	done    bool
}

func newAccount(t *testing.T, c call) *account {
	t.Helper()
	p := c.plan(t, c.Rank)
	return &account{
		t: t, c: c, plan: p, op: p2p.NewExecutor(p2p.Config{Plan: p}), in: p2p.NewInbox(p),
		got: map[int]bool{}, ready: map[int]bool{},
	}
}

func (a *account) message(from int, wrong bool) {
	m := wire.Msg{Kind: wire.MsgReady, Digest: a.plan.DigestWith(from)}
	if wrong {
		m.Digest++
	} else if !a.done {
		a.ready[from] = true
	}
	acts := a.op.Step(1, step.Event{Kind: step.EvMsg, From: from, Msg: &m}, nil)
	if !wrong {
		a.did(acts)
	} else if mismatch := len(acts) == 1 && acts[0].Kind == step.ActMismatch &&
		acts[0].To == from; !mismatch { // also when we are done
		a.t.Fatalf("%v: rank %d: a wrong digest gives %v", a.c, a.c.Rank, acts)
	}
}

func (a *account) data(from int, nth uint32, in *tape) {
	receive, want := a.receive(from, nth)
	length := int64(in.next() % 33)
	if in.next()%4 > 0 {
		length = want.Len // else hardly any is right
	}
	if !a.started || a.done {
		return // no driver asks
	}
	fits := receive >= 0 && !a.got[receive] && want.Len == length
	wantHold := want.Reduce && !a.have(receive) // sums are made in the plan's order
	acts, ok := deliver(a.op, a.in, 1, from, nth, length, func(i int, r *p2p.Recv, hold bool) {
		if i != receive || *r != want || hold != wantHold {
			a.t.Fatalf("%v: rank %d: piece %d of %d is %d, %+v, held %v; want %d, %+v, %v",
				a.c, a.c.Rank, nth, from, i, *r, hold, receive, want, wantHold)
		}
		a.got[receive] = true
	}, func(i int) {
		if !a.have(i + 1) {
			a.t.Fatalf("%v: rank %d applies %d before its turn", a.c, a.c.Rank, i)
		}
	})
	if ok != fits {
		a.t.Fatalf("%v: rank %d: piece %d of %d, %d long, is taken: %v, want %v", a.c, a.c.Rank, nth, from, length, ok, fits)
	}
	if !ok {
		a.foreign++
	}
	a.did(acts)
}

// receive is the n-th receive from a peer, -1 if there is none.
func (a *account) receive(from int, nth uint32) (int, p2p.Recv) {
	for i, r := range a.plan.Recvs {
		if int(r.From) != from {
			continue
		}
		if nth == 0 {
			return i, r
		}
		nth--
	}
	return -1, p2p.Recv{}
}

// have says whether the first n receives are here.
func (a *account) have(n int) bool {
	for i := range n {
		if !a.got[i] {
			return false
		}
	}
	return true
}

// greeted says whether all that the plan deals with have greeted.
func (a *account) greeted() bool {
	for _, r := range a.plan.Recvs {
		if !a.ready[int(r.From)] {
			return false
		}
	}
	for _, s := range a.plan.Sends {
		if !a.ready[int(s.To)] {
			return false
		}
	}
	return true
}

func (a *account) did(acts []step.Action) {
	for _, act := range acts {
		switch act.Kind {
		case step.ActPut:
			s := a.plan.Sends[a.sends]
			if act.To != int(s.To) || act.Off != s.Off || act.Len != s.Len || !a.ready[act.To] || !a.started {
				a.t.Fatalf("%v: rank %d hands over %+v, the plan has %+v", a.c, a.c.Rank, act, s)
			}
			if !a.have(int(s.After)) {
				a.t.Fatalf("%v: rank %d hands over %+v too early", a.c, a.c.Rank, s)
			}
			a.sends++
			a.flying++
		case step.ActComplete:
			a.done = true
		}
	}
	if all := a.started && a.sends == len(a.plan.Sends) && a.flying == 0 && len(a.got) == len(a.plan.Recvs) &&
		a.greeted(); all != a.done {
		a.t.Fatalf("%v: rank %d has sent %d (%d on their way) and received %d of %d and %d, greeted by all: %v; complete: %v",
			a.c, a.c.Rank, a.sends, a.flying, len(a.got), len(a.plan.Sends), len(a.plan.Recvs), a.greeted(), a.done)
	}
	if f := a.in.Foreign(); f != a.foreign {
		a.t.Fatalf("%v: rank %d counts %d foreign pieces, want %d", a.c, a.c.Rank, f, a.foreign)
	}
	if w := a.op.WaitingOn(); w < 0 || w >= a.c.Size {
		a.t.Fatalf("%v: rank %d waits for rank %d", a.c, a.c.Rank, w)
	}
	if missing := a.op.Missing(nil); (missing == "nothing") != (len(a.got) == len(a.plan.Recvs)) {
		a.t.Fatalf("%v: rank %d misses %s", a.c, a.c.Rank, missing)
	}
}
