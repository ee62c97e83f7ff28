package wire

import "fmt"

// DefaultPSNBits allows 256 slots, and 64 GiB per round with chunks of 4 KiB.
const DefaultPSNBits = 24

// Limits of the PSN bits. A communicator needs at least two slots, so that one operation can drain
// while the next one runs.
const (
	MinPSNBits = 4
	MaxPSNBits = 31
)

// A Layout divides the 32 bits of an immediate into a slot (the high bits) and a PSN (the low bits).
// The slot names one of the operations in flight, the PSN a chunk of it. The slot of an operation is
// its sequence number modulo the number of slots, so a receiver decodes a datagram before it knows
// the operation.
type Layout struct{ bits uint8 }

// NewLayout returns the layout with the given number of PSN bits.
func NewLayout(psnBits int) (Layout, error) {
	if psnBits == 0 {
		psnBits = DefaultPSNBits
	}
	if psnBits < MinPSNBits || psnBits > MaxPSNBits {
		return Layout{}, fmt.Errorf("%d PSN bits: must be %d to %d", psnBits, MinPSNBits, MaxPSNBits)
	}
	return Layout{uint8(psnBits)}, nil
}

// maxSlots limits the tables that are indexed by slot.
const maxSlots = 1024

// Slots is the number of operations that can be in flight at once.
func (l Layout) Slots() uint64 { return min(uint64(1)<<(32-l.bits), maxSlots) }

// Capacity is the number of chunks that one slot can number.
func (l Layout) Capacity() int64 { return 1 << l.bits }

// Slot returns the slot of the seq-th operation of a communicator.
func (l Layout) Slot(seq uint64) uint32 { return uint32(seq % l.Slots()) }

// SeqFrom returns the first operation from floor on that uses a slot.
func (l Layout) SeqFrom(floor uint64, slot uint32) uint64 {
	n := l.Slots()
	return floor + (uint64(slot)+n-floor%n)%n
}

// Imm returns the immediate of chunk psn of operation seq.
func (l Layout) Imm(seq uint64, psn uint32) uint32 { return l.Slot(seq)<<l.bits | psn }

// Split returns the slot and the PSN of an immediate. A foreign datagram may name a slot beyond Slots.
func (l Layout) Split(imm uint32) (slot, psn uint32) { return imm >> l.bits, imm & (1<<l.bits - 1) }
