package p2p

import "hash/fnv"

// planBuilder is a plan under construction.
type planBuilder struct {
	Spec
	plan   *Plan
	displs []int64 // offset of each block, and the end of the last

	recvDispls []int64 // Alltoallv: the same for the receive buffer
}

// span is a range of the buffer.
type span struct{ off, n int64 }

func newBuild(algo string, s Spec) *planBuilder {
	b := &planBuilder{Spec: s}
	if s.Kind == Barrier {
		b.Counts = nil // a barrier moves no data
	}
	if s.Kind == Broadcast || s.Kind == Reduce || s.Kind == Allreduce {
		// Algorithms that scatter cut the buffer into one block per rank.
		b.Counts = make([]int64, s.Size)
		units, size := (s.Bytes+s.Align-1)/s.Align, int64(s.Size)
		begin := func(i int64) int64 { // units*i/size without a product that may overflow
			return min((units/size*i+units%size*i/size)*s.Align, s.Bytes)
		}
		for i := range b.Counts {
			b.Counts[i] = begin(int64(i)+1) - begin(int64(i))
		}
	}
	b.displs = displacements(b.Counts)
	if b.Counts == nil {
		b.displs = make([]int64, s.Size+1)
	}
	b.plan = &Plan{
		Kind: s.Kind, Algo: algo, Rank: s.Rank, Size: s.Size, Root: s.Root, Bytes: b.displs[s.Size], Type: s.Type,
	}
	b.layOut()
	if seg := b.segment(); seg > 0 {
		b.plan.Segments = b.plan.Bytes / seg
	}
	b.plan.Digest = b.digest(algo)
	return b
}

// digest returns the same value on all ranks that make the same call.
func (b *planBuilder) digest(algo string) uint64 {
	counts := b.Counts
	if b.Kind.Private() {
		counts = nil // compared by pair of ranks: see Plan.contacts
	}
	return digest(algo, counts, int64(b.Kind), int64(b.Size), int64(b.Root), b.Bytes, int64(b.Radix),
		b.Segment, b.Align, int64(b.Type))
}

// layOut sets the sizes of the plan's buffer.
func (b *planBuilder) layOut() {
	p, total, own := b.plan, b.plan.Bytes, int64(0)
	if len(b.Counts) > 0 {
		own = b.Counts[b.Rank]
	}
	atRoot := func(n int64) int64 {
		if b.Rank == b.Root {
			return n
		}
		return 0
	}
	switch b.Kind {
	case Gather, Gatherv:
		p.Input, p.Output = own, atRoot(total)
	case Scatter, Scatterv:
		p.Input, p.Output = atRoot(total), own
	case Alltoall:
		p.Input, p.Output = total, total
	case Alltoallv:
		b.recvDispls = displacements(b.Receives)
		p.Input, p.Output = total, b.recvDispls[b.Size]
	default:
		p.Output = total
	}
}

// displacements returns the offset of each block, and the end of the last.
func displacements(counts []int64) []int64 {
	d := make([]int64, len(counts)+1)
	for i, n := range counts {
		d[i+1] = d[i] + n
	}
	return d
}

// keepOwn copies the block that this rank has for itself.
func (b *planBuilder) keepOwn() {
	switch b.Kind {
	case Gather, Gatherv:
		if b.Rank == b.Root {
			b.copyBefore(0, b.plan.Input+b.displs[b.Rank], b.plan.Input)
		}
	case Scatter, Scatterv:
		if b.Rank == b.Root {
			b.copyBefore(b.displs[b.Rank], b.plan.Input, b.plan.Output)
		}
	case Alltoall, Alltoallv:
		from, to := b.sendBlock(b.Rank), b.recvBlock(b.Rank)
		b.copyBefore(from.off, to.off, min(from.n, to.n))
	}
}

func (b *planBuilder) copyBefore(from, to, n int64) {
	if n > 0 {
		b.plan.Before = append(b.plan.Before, Copy{from, to, n})
	}
}

func (b *planBuilder) copyAfter(from, to, n int64) {
	if n > 0 {
		b.plan.After = append(b.plan.After, Copy{from, to, n})
	}
}

// scratch adds scratch memory to the plan and returns its offset.
func (b *planBuilder) scratch(n int64) int64 {
	p := b.plan
	at := p.Input + p.Output + p.Scratch
	p.Scratch += n
	return at
}

func digest(algo string, counts []int64, params ...int64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(algo))
	var buf [8]byte
	for _, list := range [][]int64{params, counts} {
		for _, v := range list {
			for i := range buf {
				buf[i] = byte(v >> (8 * i))
			}
			h.Write(buf[:])
		}
	}
	return h.Sum64()
}

func (b *planBuilder) block(i int) span {
	i = ((i % b.Size) + b.Size) % b.Size
	return span{b.displs[i], b.Counts[i]}
}

// whole returns the buffer as one span.
func (b *planBuilder) whole() span { return span{0, b.displs[b.Size]} }

// blocks returns the span of blocks [lo, hi), which do not wrap.
func (b *planBuilder) blocks(lo, hi int) span { return span{b.displs[lo], b.displs[hi] - b.displs[lo]} }

// wrapping returns the one or two spans of n blocks from i on, which may wrap.
func (b *planBuilder) wrapping(i, n int) []span {
	i = ((i % b.Size) + b.Size) % b.Size
	if i+n <= b.Size {
		return []span{b.blocks(i, i+n)}
	}
	return []span{b.blocks(i, b.Size), b.blocks(0, i+n-b.Size)}
}

// segment returns the maximum length of a piece, or 0 if pieces are as long as their spans.
func (b *planBuilder) segment() int64 {
	if b.Segment == 0 {
		return 0
	}
	return max(b.Segment/b.Align, 1) * b.Align
}

// pieces cuts a span into segments. An empty span becomes one empty piece, so that every step
// exchanges a message and orders the next step.
func (b *planBuilder) pieces(s span) []span {
	seg := b.segment()
	if seg == 0 || s.n <= seg {
		return []span{s}
	}
	var out []span
	for at := int64(0); at < s.n; at += seg {
		out = append(out, span{s.off + at, min(seg, s.n-at)})
	}
	return out
}

// done returns the number of receives so far: the After value of a send that needs all of them.
func (b *planBuilder) done() int { return len(b.plan.Recvs) }

func (b *planBuilder) send(to int, s span, after int) {
	b.plan.Sends = append(b.plan.Sends, Send{Off: s.off, Len: s.n, To: int32(to), After: int32(after)})
}

func (b *planBuilder) recv(from int, s span, reduce bool) {
	b.plan.Recvs = append(b.plan.Recvs, Recv{Off: s.off, Len: s.n, From: int32(from), Reduce: reduce})
}

// exchange sends and receives lists of spans in segments. All sends wait for everything received
// before.
func (b *planBuilder) exchange(to int, out []span, from int, in []span, reduce bool) {
	after := b.done()
	for _, s := range out {
		for _, p := range b.pieces(s) {
			b.send(to, p, after)
		}
	}
	for _, s := range in {
		for _, p := range b.pieces(s) {
			b.recv(from, p, reduce)
		}
	}
}

// relative returns the distance of this rank from the root.
func (b *planBuilder) relative() int { return (b.Rank - b.Root + b.Size) % b.Size }

func (b *planBuilder) absolute(v int) int { return (v + b.Root) % b.Size }
