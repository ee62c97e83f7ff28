package sim

import "sort"

// moveLimit is the total size of receive buffers up to which payload is really moved. Beyond it, each
// chunk is represented by one tag of random bytes.
const (
	moveLimit = 192 << 20
	tagSize   = 4
)

// blocks is the layout of a collective's buffer: one block per rank, cut into chunks that are numbered
// over all blocks. Offsets count bytes of the buffer. Memory holds the same bytes, or one tag per chunk.
type blocks struct {
	counts  []int64
	displs  []int64 // start of each block, and the end
	cells   []int   // first chunk of each block, and the number of chunks
	chunk   int64
	uniform bool // whether all ranks contribute the same size
	move    bool // whether memory holds bytes, not tags
}

func newBlocks(counts []int64, chunk int64, ranks int) blocks {
	b := blocks{counts: counts, displs: make([]int64, len(counts)+1), cells: make([]int, len(counts)+1), chunk: chunk}
	b.uniform = counts[0] > 0
	for i, n := range counts {
		b.uniform = b.uniform && n == counts[0]
		b.displs[i+1] = b.displs[i] + n
		b.cells[i+1] = b.cells[i] + int((n+chunk-1)/chunk)
	}
	b.move = b.total() <= moveLimit/int64(ranks)
	return b
}

func (b *blocks) total() int64 { return b.displs[len(b.counts)] }

func (b *blocks) chunks() int { return b.cells[len(b.counts)] }

// blockAt returns the block at an offset.
func (b *blocks) blockAt(off int64) int {
	if b.uniform {
		return int(off / b.counts[0])
	}
	return sort.Search(len(b.counts), func(i int) bool { return b.displs[i+1] > off })
}

// chunkEnd returns the end of the chunk at an offset.
func (b *blocks) chunkEnd(off int64) int64 {
	r := b.blockAt(off)
	return min(off+b.chunk-(off-b.displs[r])%b.chunk, b.displs[r+1])
}

// cell returns the number of the chunk at an offset.
func (b *blocks) cell(off int64) int {
	r := b.blockAt(off)
	return b.cells[r] + int((off-b.displs[r])/b.chunk)
}

// size returns the size of the memory for all blocks.
func (b *blocks) size() int64 { return b.start(len(b.counts)) }

// start returns the position of a block in memory.
func (b *blocks) start(block int) int64 {
	if b.move {
		return b.displs[block]
	}
	return tagSize * int64(b.cells[block])
}

// block returns the part of a memory that holds a block.
func (b *blocks) block(mem []byte, block int) []byte { return mem[b.start(block):b.start(block+1)] }

// at returns the position of an offset in memory.
func (b *blocks) at(off int64) int64 {
	if b.move {
		return off
	}
	return tagSize * int64(b.cell(off))
}

// width returns the space in memory of n bytes of one chunk.
func (b *blocks) width(n int64) int64 {
	if b.move {
		return n
	}
	return tagSize
}
