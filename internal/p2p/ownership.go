package p2p

import (
	"cmp"
	"slices"
)

// A reduction neither changes nor copies its input. A rank sends a block from the input until a piece
// has been added to the block. The first sum of a range is the piece that arrived plus the input, and
// goes to separate memory. Which sends and receives that concerns depends on the plan alone, so it is
// computed once.

// A Partial is a range of the buffer that holds partial sums, with the number of sends of it or of a
// part of it.
type Partial struct {
	Off, Len int64
	Sends    int
}

// ownership marks the sends that read from the input and the first receive of each range. It also
// lists the ranges that hold sums when they are sent on.
func (p *Plan) ownership() {
	if !p.Kind.Reduces() {
		return
	}
	if p.Scratch > 0 { // every sum has memory of its own
		for i := range p.Sends {
			p.Sends[i].Input = p.Sends[i].Off < p.Output
		}
		return
	}
	order := make([]int, len(p.Sends))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(p.Sends[a].After - p.Sends[b].After) })
	var received cover
	next := 0
	for i := 0; i <= len(p.Recvs); i++ {
		for ; next < len(order) && int(p.Sends[order[next]].After) <= i; next++ {
			s := &p.Sends[order[next]]
			s.Input = !received.overlaps(s.Off, s.Len)
			if !s.Input {
				p.Partials = append(p.Partials, Partial{s.Off, s.Len, 1})
			}
		}
		if i < len(p.Recvs) {
			r := &p.Recvs[i]
			r.First = r.Reduce && !received.overlaps(r.Off, r.Len)
			received.add(r.Off, r.Len)
		}
	}
	p.Partials = mergeOverlapping(p.Partials)
}

// mergeOverlapping sorts ranges and merges those that overlap. It keeps adjacent ranges apart.
func mergeOverlapping(all []Partial) []Partial {
	slices.SortFunc(all, func(a, b Partial) int { return cmp.Compare(a.Off, b.Off) })
	out := all[:0]
	for _, s := range all {
		if s.Len == 0 {
			continue
		}
		if k := len(out) - 1; k >= 0 && s.Off < out[k].Off+out[k].Len {
			out[k].Len = max(out[k].Len, s.Off+s.Len-out[k].Off)
			out[k].Sends += s.Sends
			continue
		}
		out = append(out, s)
	}
	return out
}

// cover is a sorted list of received ranges without overlaps.
type cover []span

func (c cover) overlaps(off, n int64) bool {
	i := c.after(off)
	return n > 0 && i < len(c) && c[i].off < off+n
}

// after returns the index of the first span that ends after off.
func (c cover) after(off int64) int {
	i, _ := slices.BinarySearchFunc(c, off, func(s span, off int64) int {
		if s.off+s.n > off {
			return 1
		}
		return -1
	})
	return i
}

func (c *cover) add(off, n int64) {
	if n == 0 {
		return
	}
	// Spans that touch or overlap become one.
	from := c.after(off - 1)
	to := from
	end := off + n
	for to < len(*c) && (*c)[to].off <= end {
		off, end = min(off, (*c)[to].off), max(end, (*c)[to].off+(*c)[to].n)
		to++
	}
	*c = slices.Replace(*c, from, to, span{off, end - off})
}
