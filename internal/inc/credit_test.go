package inc

import (
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// ideal is ranks whose messages arrive at once. Sums arrive when the test says so.
type ideal struct {
	t     *testing.T
	now   step.Time
	ops   []*Op
	queue []idealMsg
	done  int
}

type idealMsg struct {
	from, to int
	msg      wire.Msg
}

func newIdeal(t *testing.T, size int, window uint32, chunks int64) *ideal {
	t.Helper()
	c := &ideal{t: t, now: step.Second}
	for r := range size {
		c.ops = append(c.ops, New(Config{Reduction: &Reduction{
			Rank: r, Size: size, Kind: wire.ReduceScatter, Counts: equalCounts(size, 8*chunks), Chunk: 8,
		}, Window: window, Batch: 64, Alpha: func() step.Time { return step.Millisecond }}))
	}
	for r, o := range c.ops {
		c.act(r, o.Step(c.now, step.Event{Kind: step.EvStart}, nil))
	}
	c.deliver()
	return c
}

func (c *ideal) act(rank int, acts []step.Action) {
	for i := range acts {
		switch a := &acts[i]; a.Kind {
		case step.ActSend:
			c.queue = append(c.queue, idealMsg{rank, a.To, a.Msg})
		case step.ActReduce:
			defer func(n uint32) { c.act(rank, c.ops[rank].Step(c.now, step.Event{Kind: step.EvSent, N: n}, nil)) }(a.N)
		case step.ActComplete:
			c.done++
		case step.ActClosed:
		default:
			c.t.Fatalf("rank %d: action %v", rank, a.Kind)
		}
	}
}

func (c *ideal) deliver() {
	for len(c.queue) > 0 {
		x := c.queue[0]
		c.queue = c.queue[1:]
		c.act(x.to, c.ops[x.to].Step(c.now, step.Event{Kind: step.EvMsg, From: x.from, Msg: &x.msg}, nil))
	}
}

// receive lets a rank have its chunks below end.
func (c *ideal) receive(rank int, end uint32) {
	o := c.ops[rank]
	for nth := o.record.NextMissing(0, end); nth < end; nth++ {
		if o.layout.Place(rank, nth) >= o.credit.all {
			c.t.Fatalf("rank %d: chunk %d was not sent", rank, nth)
		}
		o.record.Finish(nth, 1)
	}
	c.act(rank, o.Summed(c.now, nil))
	c.deliver()
}

// Each level of the control tree withholds small increases of its grant. The credit nevertheless rises when no sum is
// missing, however deep the tree is.
func TestCreditRisesInDeepTrees(t *testing.T) {
	const size, rounds = 512, 60
	c := newIdeal(t, size, rounds*size, 200)
	// Ranks on the longest path to the top progress in such a way that each withholds nearly one part in eight.
	path, have := []int{510, 508, 504, 496, 480, 448, 384, 256}, []uint32{54, 47, 40, 33, 27, 20, 14, 7}
	late := map[int]bool{}
	for _, r := range path {
		late[r] = true
	}
	for r := size - 1; r >= 0; r-- {
		if !late[r] {
			c.receive(r, rounds)
		}
	}
	for i, r := range path {
		c.receive(r, have[i])
		c.receive(r, rounds)
	}
	for i := 0; i < 1000 && c.done < size; i++ { // everything that was sent arrives
		all := c.ops[0].total
		for _, o := range c.ops {
			all = min(all, o.send.next)
		}
		for r, o := range c.ops {
			c.receive(r, o.layout.Before(r, all))
		}
	}
	if c.done < size {
		t.Errorf("%d of %d ranks complete; credit for %d of %d places", c.done, size, c.ops[0].credit.all, c.ops[0].total)
	}
}

// All ranks on the longest path together withhold less than a window.
func TestCreditQuantum(t *testing.T) {
	for _, size := range []int{1, 2, 3, 8, 9, 64, 511, 512, 513, 4096, 65535} {
		levels := uint64(0)
		for r := range size {
			n := uint64(1)
			for at := r; mcast.TreeParent(at, size) >= 0; at = mcast.TreeParent(at, size) {
				n++
			}
			levels = max(levels, n)
		}
		for _, w := range []uint32{1, 2, 7, 8, 9, 10, 64, 100, 1024, 1 << 20} {
			o := &Op{window: w, red: &Reduction{Size: size}}
			if q := o.quantum(); q < 1 || levels*uint64(q-1) >= uint64(w) {
				t.Errorf("%d ranks, window %d: %d levels withhold %d each", size, w, levels, q-1)
			}
		}
	}
}
