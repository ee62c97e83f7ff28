package p2p_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// causes says, for each receive of each rank, which sends must have departed
// before it can arrive, whatever the network does: by pair of ranks, how many.
type causes struct {
	*matched
	size  int
	waits [][]int
	memo  [][][]int // by rank and receive
}

func newCauses(m *matched) *causes {
	c := &causes{matched: m, size: len(m.plans)}
	for _, p := range m.plans {
		c.waits = append(c.waits, waits(p))
		c.memo = append(c.memo, make([][]int, len(p.Recvs)))
	}
	return c
}

// departed is the answer for one receive. A send departs after the receives it
// waits for, and after the sends before it to the same peer.
func (c *causes) departed(rank, j int) []int {
	if v := c.memo[rank][j]; v != nil {
		return v
	}
	v := make([]int, c.size*c.size)
	from := c.sender[rank][j]
	for k := range c.waits[from.rank][from.i] {
		for pair, n := range c.departed(from.rank, k) {
			v[pair] = max(v[pair], n)
		}
	}
	pair := from.rank*c.size + rank
	v[pair] = max(v[pair], c.nth[from.rank][from.i]+1)
	c.memo[rank][j] = v
	return v
}

// afterSend reports whether receive j cannot arrive before send i departed.
func (c *causes) afterSend(rank, j, i int) bool {
	return c.departed(rank, j)[rank*c.size+int(c.plans[rank].Sends[i].To)] > c.nth[rank][i]
}

// afterRecv reports whether receive j cannot arrive before receive k.
func (c *causes) afterRecv(rank, j, k int) bool {
	p := c.plans[rank]
	if p.Recvs[j].From == p.Recvs[k].From {
		return j > k
	}
	for i := range p.Sends {
		if c.waits[rank][i] > k && c.afterSend(rank, j, i) {
			return true
		}
	}
	return false
}

func overlap(off, n, off2, n2 int64) bool { return n > 0 && n2 > 0 && off < off2+n2 && off2 < off+n }

// reads reports whether a send reads from a range.
func reads(s *p2p.Send, off, n int64) bool {
	if s.Parts == nil {
		return overlap(s.Off, s.Len, off, n)
	}
	return slices.ContainsFunc(s.Parts, func(p wire.Span) bool { return overlap(p.Off, p.Len, off, n) })
}

// race finds a receive that may change what a send carries, or replace what
// another receive still adds to, depending on which comes first.
func (c *causes) race() error {
	for rank, p := range c.plans {
		for j, r := range p.Recvs {
			for i, s := range p.Sends {
				if j >= int(s.After) && reads(&s, r.Off, r.Len) && !c.afterSend(rank, j, i) {
					return fmt.Errorf("rank %d: %+v can arrive before %+v has departed", rank, r, s)
				}
			}
			for k, q := range p.Recvs {
				if q.Reduce && !r.Reduce && overlap(q.Off, q.Len, r.Off, r.Len) && !c.afterRecv(rank, j, k) {
					return fmt.Errorf("rank %d: %+v can arrive before %+v", rank, r, q)
				}
			}
		}
	}
	return nil
}

// Reductions change buffers that are still being sent from: each change must be
// caused by the departure of what it destroys. (The others only write again what
// is already there, which the symbolic execution shows.)
func TestReductionsHaveNoRaces(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		if !kind.Reduces() {
			return
		}
		for size := 2; size <= 13; size++ {
			for _, segment := range []int64{0, 2} {
				c := call{algo, p2p.Spec{Kind: kind, Size: size, Segment: segment}}.sized(4)
				m, err := match(c.plans(t))
				if err == nil {
					err = newCauses(m).race()
				}
				if err != nil {
					t.Errorf("%v: %v", c, err)
				}
			}
		}
	})
}

// An exchange writes each byte at most once, before any send reads it, and never the user's input. Copies
// within the buffer do not depend on their order.
func TestExchangesHaveNoRaces(t *testing.T) {
	everyAlgorithm(t, func(x subject) {
		t, kind, algo := x.T, x.kind, x.algo
		if !clustertest.Exchanges(kind) && algo != "pat" {
			return
		}
		for size := 2; size <= 13; size++ {
			for _, segment := range []int64{0, 2} {
				c := call{algo, p2p.Spec{Kind: kind, Size: size, Root: size / 3, Segment: segment}}.sized(5)
				m, err := match(c.plans(t))
				if err == nil {
					err = newCauses(m).race()
				}
				for _, p := range m.plans {
					if err == nil && !kind.Reduces() {
						err = writtenOnce(p)
					}
				}
				if err != nil {
					t.Errorf("%v: %v", c, err)
				}
			}
		}
	})
}

// writtenOnce finds a byte of a plan's buffer that is written twice, or before all that read it have.
func writtenOnce(p *p2p.Plan) error {
	type write struct {
		what   string
		off, n int64
	}
	var writes []write
	for _, b := range p.Before {
		writes = append(writes, write{"copy before", b.To, b.Len})
	}
	for _, r := range p.Recvs {
		writes = append(writes, write{"receive", r.Off, r.Len})
	}
	for _, a := range p.After {
		writes = append(writes, write{"copy after", a.To, a.Len})
	}
	end := p.Input + p.Output + p.Scratch
	for i, w := range writes {
		if w.off < p.Input || w.off+w.n > end {
			return fmt.Errorf("rank %d: %+v is outside of the output and the scratch memory", p.Rank, w)
		}
		for _, v := range writes[:i] {
			if overlap(w.off, w.n, v.off, v.n) {
				return fmt.Errorf("rank %d: %+v overwrites %+v", p.Rank, w, v)
			}
		}
		for _, copies := range [][]p2p.Copy{p.Before, p.After} {
			for _, x := range copies {
				if w.what != "receive" && overlap(w.off, w.n, x.From, x.Len) {
					return fmt.Errorf("rank %d: %+v overwrites the source of %+v", p.Rank, w, x)
				}
			}
		}
	}
	return nil
}
