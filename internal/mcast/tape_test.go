package mcast

import (
	"slices"

	"github.com/allcast/allcast/internal/wire"
)

// tape is a fuzzer's input, read as a sequence of decisions; past its end they are all 0.
type tape []byte

func (t *tape) u8() uint8 {
	if len(*t) == 0 {
		return 0
	}
	b := (*t)[0]
	*t = (*t)[1:]
	return b
}

func (t *tape) u16() uint16 { return uint16(t.u8()) | uint16(t.u8())<<8 }
func (t *tape) u32() uint32 { return uint32(t.u16()) | uint32(t.u16())<<16 }
func (t *tape) u64() uint64 { return uint64(t.u32()) | uint64(t.u32())<<32 }

// below is less than n, which is at most 256.
func (t *tape) below(n int) int { return int(t.u8()) % n }

// take is up to n bytes as they are.
func (t *tape) take(n int) []byte {
	n = min(n, len(*t))
	b := (*t)[:n]
	*t = (*t)[n:]
	return b
}

// shape is any Shape of at most maxP ranks, sensible or not.
func (t *tape) shape(maxP int) (s Shape, psnBits int) {
	s.Kind = []wire.CallKind{wire.Allgather, wire.Allgather, wire.Broadcast, wire.Broadcast, 0, 9}[t.below(6)]
	s.Counts = make([]int64, t.below(maxP+1))
	s.Root = int(int8(t.u8()))
	s.Chunk = int(int8(t.u8()))
	s.Chains = int(int8(t.u8()))
	s.Subgroups = int(int8(t.u8()))
	for i := range s.Counts {
		if s.Kind != wire.Broadcast || i == s.Root {
			s.Counts[i] = int64(int16(t.u16()) % 1024)
		}
	}
	if t.below(4) == 0 {
		for range t.below(len(s.Counts) + 2) {
			group := make([]int, t.below(4))
			for i := range group {
				group[i] = int(int8(t.u8()))
			}
			s.Groups = append(s.Groups, group)
		}
	}
	return s, wire.MinPSNBits + t.below(12)
}

// legal makes the best of a Shape.
func legal(s Shape) Shape {
	if s.Kind != wire.Broadcast {
		s.Kind = wire.Allgather
	}
	if len(s.Counts) == 0 {
		s.Counts = []int64{5}
	}
	s.Root = max(0, s.Root) % len(s.Counts)
	s.Counts = slices.Clone(s.Counts)
	for i, n := range s.Counts {
		if s.Counts[i] = max(0, n); s.Kind == wire.Broadcast && i != s.Root {
			s.Counts[i] = 0
		}
	}
	s.Chunk, s.Chains, s.Subgroups = max(1, s.Chunk), max(1, s.Chains), max(1, s.Subgroups)
	if (&s).check() != nil {
		s.Groups = nil
	}
	return s
}
