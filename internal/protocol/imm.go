package protocol

import "fmt"

// DefaultPSNBits leaves 256 slots, and 64 GiB for one round at 4 KiB chunks.
const DefaultPSNBits = 24

// Limits of Layout's bits. A communicator needs at least two slots to have
// one operation draining while the next one runs.
const (
	MinPSNBits = 4
	MaxPSNBits = 31
)

// A Layout divides the 32 bits of an immediate into intervals, one for each
// operation in flight: the high bits name the interval (slot), the low ones the
// chunk (PSN). An Op's slot is its sequence number modulo the number of slots,
// so a datagram decodes without knowing which Op it belongs to.
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

// maxSlots bounds the tables that are indexed by slot. More would only make a
// slot's reuse rarer still.
const maxSlots = 1024

// Slots is how many operations can be told apart at once.
func (l Layout) Slots() uint64 { return min(uint64(1)<<(32-l.bits), maxSlots) }

// Capacity is how many chunks one slot can number.
func (l Layout) Capacity() int64 { return 1 << l.bits }

// Slot is the slot of the seq-th operation of a communicator.
func (l Layout) Slot(seq uint64) uint32 { return uint32(seq % l.Slots()) }

// Imm is the immediate of chunk psn of operation seq.
func (l Layout) Imm(seq uint64, psn uint32) uint32 { return l.Slot(seq)<<l.bits | psn }

// Split takes an immediate apart. A stranger's may name a slot beyond Slots.
func (l Layout) Split(imm uint32) (slot, psn uint32) { return imm >> l.bits, imm & (1<<l.bits - 1) }
