package inc

import (
	"cmp"
	"slices"
	"sort"
)

// A Layout is the order of all chunks of a Reduce-Scatter: the first chunk of every block, then the second
// chunk of every block that has one, and so on. It is immutable.
type Layout struct {
	counts []int64 // bytes of each block
	displs []int64 // offset of each block
	chunks []uint32
	chunk  int64
	places uint32
	layers []layer
	group  int
}

// A layer is a run of rounds over the same blocks. Blocks of different lengths make several layers: when the
// shortest block ends, the next layer begins.
type layer struct {
	nth    uint32   // number of the first chunk of each block in this layer
	place  uint32   // place of the first chunk of this layer
	width  uint32   // number of blocks
	blocks []int32  // nil if there are too many layers to list them
	before []uint32 // by group of Layout.group ranks: number of blocks in the groups before
}

// maxListed limits the blocks that all layers list, and the groups of the others. A layer without a list searches one
// group.
const maxListed = 1 << 16

// NewLayout returns the Layout of blocks that are cut into chunks of the given size in bytes.
func NewLayout(counts []int64, chunk int) *Layout {
	l := &Layout{
		counts: counts, displs: make([]int64, len(counts)), chunks: make([]uint32, len(counts)), chunk: int64(chunk),
	}
	var at int64
	active := make([]int32, 0, len(counts))
	for i, n := range counts {
		l.displs[i], l.chunks[i] = at, uint32((n+l.chunk-1)/l.chunk)
		at += n
		if n > 0 {
			active = append(active, int32(i))
		}
	}
	lengths := slices.Clone(active)
	slices.SortFunc(lengths, func(a, b int32) int { return cmp.Compare(l.chunks[a], l.chunks[b]) })
	before := l.groups(active, lengths)
	listed := 0
	var nth uint32
	for i := 0; i < len(lengths); {
		end := l.chunks[lengths[i]]
		y := layer{nth: nth, place: l.places, width: uint32(len(lengths) - i), before: slices.Clone(before)}
		if listed+int(y.width) <= maxListed || i == 0 {
			listed += int(y.width)
			y.blocks = slices.DeleteFunc(slices.Clone(active), func(b int32) bool { return l.chunks[b] <= nth })
		}
		l.layers = append(l.layers, y)
		l.places += (end - nth) * y.width
		for nth = end; i < len(lengths) && l.chunks[lengths[i]] == end; i++ {
			for g := int(lengths[i])/l.group + 1; g < len(before); g++ {
				before[g]--
			}
		}
	}
	return l
}

// groups chooses the size of groups, and returns the number of blocks before each group in the first layer.
func (l *Layout) groups(active, lengths []int32) (before []uint32) {
	layers := 0
	for i, b := range lengths {
		if i == 0 || l.chunks[b] != l.chunks[lengths[i-1]] {
			layers++
		}
	}
	l.group = max(64, layers*len(l.chunks)/maxListed)
	before = make([]uint32, (len(l.chunks)+l.group-1)/l.group)
	for _, b := range active {
		for g := int(b)/l.group + 1; g < len(before); g++ {
			before[g]++
		}
	}
	return before
}

// Places returns the number of chunks of all blocks.
func (l *Layout) Places() uint32 { return l.places }

// Chunks returns the number of chunks of a block.
func (l *Layout) Chunks(owner int) uint32 { return l.chunks[owner] }

// Place returns the place of the nth chunk of a block. For the number of chunks, it returns Places.
func (l *Layout) Place(owner int, nth uint32) uint32 {
	if nth >= l.chunks[owner] {
		return l.places
	}
	i := 0
	if len(l.layers) > 1 {
		i = sort.Search(len(l.layers), func(i int) bool { return l.layers[i].nth > nth }) - 1
	}
	y := &l.layers[i]
	return y.place + (nth-y.nth)*y.width + l.index(y, owner)
}

// At returns the block of a place, the number of the chunk in that block, and its range in the send buffer.
func (l *Layout) At(place uint32) (owner int, nth uint32, off, length int64) {
	i := 0
	if len(l.layers) > 1 {
		i = sort.Search(len(l.layers), func(i int) bool { return l.layers[i].place > place }) - 1
	}
	y := &l.layers[i]
	round, k := (place-y.place)/y.width, (place-y.place)%y.width
	owner, nth = l.block(y, k), y.nth+round
	at := int64(nth) * l.chunk
	return owner, nth, l.displs[owner] + at, min(l.chunk, l.counts[owner]-at)
}

// Before returns how many chunks of a block have places below place.
func (l *Layout) Before(owner int, place uint32) uint32 {
	if place >= l.places {
		return l.chunks[owner]
	}
	other, nth, _, _ := l.At(place)
	if owner < other {
		nth++
	}
	return min(nth, l.chunks[owner])
}

// index returns the position of a block in a layer.
func (l *Layout) index(y *layer, owner int) (k uint32) {
	if y.blocks != nil {
		i, _ := slices.BinarySearch(y.blocks, int32(owner))
		return uint32(i)
	}
	g := owner / l.group
	k = y.before[g]
	for _, n := range l.chunks[g*l.group : owner] {
		if n > y.nth {
			k++
		}
	}
	return k
}

// block returns the kth block of a layer.
func (l *Layout) block(y *layer, k uint32) int {
	if y.blocks != nil {
		return int(y.blocks[k])
	}
	g := sort.Search(len(y.before), func(g int) bool { return y.before[g] > k }) - 1
	k -= y.before[g]
	i := g * l.group
	for ; l.chunks[i] <= y.nth || k > 0; i++ {
		if l.chunks[i] > y.nth {
			k--
		}
	}
	return i
}
