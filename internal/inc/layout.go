package inc

// A Layout is the order of all chunks of a Reduce-Scatter.
type Layout struct {
	counts []int64 // bytes of each block
	chunk  int64
}

// NewLayout returns the Layout of blocks that are cut into chunks of the given size in bytes.
func NewLayout(counts []int64, chunk int) *Layout { panic("TODO") }

// Places returns the number of chunks of all blocks.
func (l *Layout) Places() uint32 { panic("TODO") }

// Chunks returns the number of chunks of a block.
func (l *Layout) Chunks(owner int) uint32 { panic("TODO") }

// Place returns the place of the nth chunk of a block.
func (l *Layout) Place(owner int, nth uint32) uint32 { panic("TODO") }

// At returns the block of a place, the number of the chunk in that block, and its range in the send buffer.
func (l *Layout) At(place uint32) (owner int, nth uint32, off, length int64) { panic("TODO") }
