package wire

import (
	"testing"

	"pgregory.net/rapid"
)

func TestLayoutLimits(t *testing.T) {
	for bits := -1; bits <= 40; bits++ {
		l, err := NewLayout(bits)
		legal := bits == 0 || bits >= MinPSNBits && bits <= MaxPSNBits
		if legal != (err == nil) {
			t.Errorf("%d bits: %v", bits, err)
		}
		if err == nil && (l.Slots() < 2 || l.Capacity() < 1<<MinPSNBits) {
			t.Errorf("%d bits: %d slots of %d chunks", bits, l.Slots(), l.Capacity())
		}
	}
	if l := mustLayout(t, 0); l.Capacity() != 1<<DefaultPSNBits || l.Slots() != 256 {
		t.Errorf("default: %d slots of %d chunks", l.Slots(), l.Capacity())
	}
}

// drawLayout draws a valid layout.
func drawLayout(t *rapid.T) Layout {
	return mustLayout(t, rapid.IntRange(MinPSNBits, MaxPSNBits).Draw(t, "PSN bits"))
}

func TestImmediateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		seq := rapid.Uint64().Draw(t, "seq")
		psn := uint32(rapid.Int64Range(0, l.Capacity()-1).Draw(t, "PSN"))
		slot, got := l.Split(l.Imm(seq, psn))
		if slot != l.Slot(seq) || got != psn {
			t.Fatalf("slot %d, PSN %d; want %d, %d", slot, got, l.Slot(seq), psn)
		}
		if uint64(slot) >= l.Slots() {
			t.Fatalf("slot %d of %d", slot, l.Slots())
		}
	})
}

// Operations with different slots never share an immediate, for any PSNs. A slot is reused after exactly
// Slots() operations.
func TestSlotsNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		a := rapid.Uint64Range(0, 1<<40).Draw(t, "a")
		b := a + rapid.Uint64Range(1, l.Slots()-1).Draw(t, "later")
		psn := rapid.Int64Range(0, l.Capacity()-1)
		if x, y := l.Imm(a, uint32(psn.Draw(t, "x"))), l.Imm(b, uint32(psn.Draw(t, "y"))); x == y {
			t.Fatalf("operations %d and %d share the immediate %#x", a, b, x)
		}
		if l.Slot(a) != l.Slot(a+l.Slots()) {
			t.Fatalf("operation %d: slot %d, its successor's %d", a, l.Slot(a), l.Slot(a+l.Slots()))
		}
	})
}

// Decoding arbitrary 32 bits, as in a foreign packet, loses no information.
func TestSplitIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, imm := drawLayout(t), rapid.Uint32().Draw(t, "immediate")
		slot, psn := l.Split(imm)
		if int64(psn) >= l.Capacity() || uint64(slot)*uint64(l.Capacity())+uint64(psn) != uint64(imm) {
			t.Fatalf("%#x: slot %d, PSN %d", imm, slot, psn)
		}
	})
}

// fataler is the common part of *testing.T, *testing.B and *rapid.T.
type fataler interface{ Fatal(args ...any) }

func mustLayout(t fataler, psnBits int) Layout {
	l, err := NewLayout(psnBits)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
