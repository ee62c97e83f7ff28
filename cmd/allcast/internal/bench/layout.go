package bench

// shape is what the layout of a rank's buffers depends on.
type shape struct {
	rank, ranks, root int
	buffers           int
	n                 int64 // size
	unit              int64 // size of an element; 1 unless the operation reduces
}

// block is a part of a buffer with the data of one rank.
type block struct {
	from  int // rank that contributes it
	index int // number that tells the blocks of a rank apart
	n     int64
}

// layout describes the buffers of one rank: the send buffer before the operation, and the receive buffer after it.
type layout struct {
	in, out []block
	first   int64 // reductions: offset of the receive buffer in the whole result
	sharing sharing
	at      int64 // offset in the shared buffer
}

// sharing says how an operation works in place on this rank.
type sharing uint8

const (
	cannotShare  sharing = iota
	inputInRecv          // the input lies in the receive buffer
	outputInSend         // the result lies in the send buffer
)

func (l layout) shared(how sharing, at int64) layout {
	l.sharing, l.at = how, at
	return l
}

func (s shape) same(int) int64 { return s.n }

// uneven returns the size of block i of an operation whose blocks differ.
func (s shape) uneven(i int) int64 { return s.n / s.unit * int64(4-i%4) / 4 * s.unit }

// equal returns k blocks of a rank.
func (s shape) equal(rank, k int) []block {
	bs := make([]block, k)
	for i := range bs {
		bs[i] = block{rank, i, s.n}
	}
	return bs
}

// fromRoot has an input on the root only.
func (s shape) fromRoot(in, out []block) layout {
	if s.rank != s.root {
		return layout{out: out}
	}
	return layout{in: in, out: out}
}

// toRoot has a result on the root only.
func (s shape) toRoot(l layout) layout {
	if s.rank != s.root {
		return layout{in: l.in}
	}
	return l
}

func (s shape) gather(count func(int) int64) layout {
	l := layout{in: []block{{s.rank, 0, count(s.rank)}}}
	var at int64
	for r := range s.ranks {
		l.out = append(l.out, block{r, 0, count(r)})
		if r < s.rank {
			at += count(r)
		}
	}
	return l.shared(inputInRecv, at)
}

func (s shape) scatter(count func(int) int64) layout {
	root := s
	root.rank = s.root
	all := root.gather(count) // the same offsets, in the send buffer
	for r := range all.out {
		all.out[r].from, all.out[r].index = s.root, r
	}
	l := s.fromRoot(all.out, all.out[s.rank:s.rank+1])
	if s.rank == s.root {
		l = l.shared(outputInSend, all.at)
	}
	return l
}

func (s shape) exchange(count func(int) int64) (l layout) {
	for r := range s.ranks {
		n := count(s.rank + r)
		l.in, l.out = append(l.in, block{s.rank, r, n}), append(l.out, block{r, s.rank, n})
	}
	return l
}

// combine has a whole vector of elements as input and as result.
func (s shape) combine() layout {
	return layout{in: s.equal(s.rank, 1), out: s.equal(s.rank, 1)}.shared(inputInRecv, 0)
}

func (s shape) reduceScatter(count func(int) int64) layout {
	l := s.gather(count)
	return layout{in: l.out, out: l.in, first: l.at}.shared(outputInSend, l.at)
}

func size(bs []block) (n int64) {
	for _, b := range bs {
		n += b.n
	}
	return n
}
