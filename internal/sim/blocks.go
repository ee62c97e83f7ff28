package sim

import "sort"

// moveLimit is the total size of receive buffers up to which payload is really moved. Beyond it, each
// chunk is represented by one tag of random bytes.
const (
	moveLimit = 192 << 20
	tagSize   = 4
)

// blocks is the layout of a buffer: blocks, cut into chunks that are numbered over all blocks. Offsets
// count bytes of the buffer. Memory holds the same bytes, or one tag per chunk.
type blocks struct {
	counts  []int64
	displs  []int64 // start of each block, and the end
	cells   []int   // first chunk of each block, and the number of chunks
	chunk   int64
	uniform bool // whether all blocks have the same size
	move    bool // whether memory holds bytes, not tags
}

func newBlocks(counts []int64, chunk int64, move bool) blocks {
	n := len(counts)
	b := blocks{counts: counts, displs: make([]int64, n+1), cells: make([]int, n+1), chunk: chunk, move: move}
	b.uniform = n > 0 && counts[0] > 0
	for i, n := range counts {
		b.uniform = b.uniform && n == counts[0]
		b.displs[i+1] = b.displs[i] + n
		b.cells[i+1] = b.cells[i] + int((n+chunk-1)/chunk)
	}
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

// memory returns the size of the memory for all blocks.
func (b *blocks) memory() int64 { return b.start(len(b.counts)) }

// start returns the position of a block in memory.
func (b *blocks) start(block int) int64 {
	if b.move {
		return b.displs[block]
	}
	return tagSize * int64(b.cells[block])
}

// block returns the part of a memory that holds a block.
func (b *blocks) block(mem []byte, block int) []byte { return mem[b.start(block):b.start(block+1)] }

// pos returns the position in memory of the first chunk that begins at an offset or after it.
func (b *blocks) pos(off int64) int64 {
	switch {
	case b.move:
		return off
	case off == b.total():
		return b.memory()
	}
	r := b.blockAt(off)
	return tagSize * (int64(b.cells[r]) + (off-b.displs[r]+b.chunk-1)/b.chunk)
}
