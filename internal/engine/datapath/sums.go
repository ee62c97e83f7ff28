package datapath

import (
	"unsafe"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/reduce"
)

// sums is the memory of a point-to-point operation. The input of a reduction is neither changed nor
// copied: a rank sends data to which it has added nothing straight from there. Sums that the caller gets
// are made in the receive buffer. Sums that only pass through are made in scratch memory, which is taken
// when the first piece arrives and given back when the sum has been sent. Other operations have no sums.
// They send and receive in the receive buffer, unless their plan tells input and scratch memory apart.
type sums struct {
	kind   reduce.Type
	op     reduce.Op
	size   int // bytes per element; 1 without a reduction
	input  []byte
	result []byte
	at     int64 // where result begins in the plan's buffer
	front  int64 // size of the input at the front of the plan's buffer
	areas  []area
	pool   *scratch
}

// area is scratch memory for a range of the plan's buffer.
type area struct {
	p2p.Partial
	mem []byte // nil: not taken yet, or given back
}

func newSums(b *Buffers, pool *scratch) sums {
	s := sums{kind: b.Type, op: b.Op, size: 1, input: b.Recv, result: b.Recv, at: b.Own, pool: pool}
	if !b.Reduces {
		if p := b.Plan; p != nil {
			s.at, s.front = p.Input, p.Input
			if p.Input > 0 {
				s.input = b.Send
			}
			if p.Scratch > 0 {
				s.areas = []area{{Partial: p2p.Partial{Off: p.Input + p.Output, Len: p.Scratch}}}
			}
		}
		return s
	}
	s.size = b.Type.Size()
	if b.Send != nil { // otherwise in place
		s.input = b.Send
	}
	if p := b.Plan; p.Scratch > 0 {
		s.areas = []area{{Partial: p2p.Partial{Off: p.Output, Len: p.Scratch}}}
	}
	for _, p := range b.Plan.Partials {
		if p.Off < s.at || p.Off+p.Len > s.at+int64(len(s.result)) {
			s.areas = append(s.areas, area{Partial: p})
		}
	}
	return s
}

// source is the memory of a range to send.
func (s *sums) source(off, n int64, input bool) []byte {
	if input || off < s.front {
		return s.input[off : off+n]
	}
	return s.memory(off, n)
}

// memory is where the sum of a range is made, up to the end of the area that the range begins in.
func (s *sums) memory(off, n int64) []byte {
	if n == 0 {
		return nil // an empty block may lie behind the last area
	}
	if at := off - s.at; at >= 0 && at < int64(len(s.result)) {
		return s.result[at:min(at+n, int64(len(s.result)))]
	}
	for i := range s.areas {
		a := &s.areas[i]
		if at := off - a.Off; at >= 0 && at < a.Len {
			if a.mem == nil {
				a.mem = s.pool.get(int(a.Len))
			}
			return a.mem[at:min(at+n, a.Len)]
		}
	}
	panic("datapath: a plan has no memory for a piece")
}

// take adds a piece, or a part of one, to its sum: b belongs at off of the plan's buffer. It locks while
// it looks for memory.
func (s *sums) take(lock, unlock func(), r *p2p.Recv, off int64, b []byte) {
	for len(b) > 0 {
		lock()
		dst := s.memory(off, int64(len(b)))
		unlock()
		switch part := b[:len(dst)]; {
		case !r.Reduce:
			copy(dst, part)
		case r.Apart:
			at := r.Base + off - r.Off
			lock()
			base := s.source(at, int64(len(dst)), at < int64(len(s.result)))
			unlock()
			s.sum(dst, part, base)
		case !r.First || unsafe.SliceData(dst) == unsafe.SliceData(s.input[off:]):
			s.add(dst, part)
		default:
			s.sum(dst, part, s.input[off:off+int64(len(dst))])
		}
		off, b = off+int64(len(dst)), b[len(dst):]
	}
}

// sum makes the sum of a piece and of data that stays as it is, in parts that stay in the processor's cache.
func (s *sums) sum(dst, piece, base []byte) {
	const part = 16 << 10
	for at := 0; at < len(dst); at += part {
		end := min(at+part, len(dst))
		copy(dst[at:end], piece[at:end])
		s.add(dst[at:end], base[at:end])
	}
}

func (s *sums) add(dst, src []byte) {
	// pieces.take has checked that parts hold whole elements.
	if err := reduce.Into(dst, src, s.kind, s.op); err != nil {
		panic("datapath: " + err.Error())
	}
}

// sent gives memory back after the last send of a range.
func (s *sums) sent(off int64) {
	for i := range s.areas {
		a := &s.areas[i]
		if off < a.Off || off >= a.Off+a.Len {
			continue
		}
		if a.Sends--; a.Sends == 0 && a.mem != nil {
			s.pool.put(a.mem)
			a.mem = nil
		}
		return
	}
}

func (s *sums) release() {
	for i := range s.areas {
		if a := &s.areas[i]; a.mem != nil {
			s.pool.put(a.mem)
			a.mem = nil
		}
	}
}
