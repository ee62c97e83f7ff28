package reduce

import "encoding/binary"

// block is the number of elements that are processed on the stack at a time, if they cannot be processed
// in place.
const block = 128

// goInto is Into on the portable path.
func goInto(dst, src []byte, t Type, op Op) {
	if op.isLogic() {
		goLogic(dst, src, t, op)
		return
	}
	switch t {
	case F32:
		into(dst, src, op, nan32)
	case F64:
		into(dst, src, op, nan64)
	case F16, BF16:
		intoHalf(dst, src, t, op)
	case I8:
		into[int8](dst, src, op, 0)
	case I16:
		into[int16](dst, src, op, 0)
	case I32:
		into[int32](dst, src, op, 0)
	case I64:
		into[int64](dst, src, op, 0)
	case U8:
		into[uint8](dst, src, op, 0)
	case U16:
		into[uint16](dst, src, op, 0)
	case U32:
		into[uint32](dst, src, op, 0)
	case U64:
		into[uint64](dst, src, op, 0)
	}
}

func into[T number](dst, src []byte, op Op, nan T) {
	d, inPlace := view[T](dst)
	s, ok := view[T](src)
	if inPlace && ok {
		combine(d, s, op, nan)
		return
	}
	var a, b [block]T
	for len(dst) > 0 {
		n := load(a[:], dst)
		load(b[:], src)
		combine(a[:n], b[:n], op, nan)
		used := store(dst, a[:n])
		dst, src = dst[used:], src[used:]
	}
}

func intoHalf(dst, src []byte, t Type, op Op) {
	var a, b [block]float32
	for len(dst) > 0 {
		n := min(len(dst)/2, block)
		goWiden(a[:n], dst, t)
		goWiden(b[:n], src, t)
		combine(a[:n], b[:n], op, nan32)
		goRound(dst, a[:n], t)
		dst, src = dst[2*n:], src[2*n:]
	}
}

// goLogic combines bits, eight bytes at a time. The width and the byte order of the elements do not matter.
func goLogic(dst, src []byte, t Type, op Op) {
	le := binary.LittleEndian
	for ; len(dst) >= 8 && len(src) >= 8; dst, src = dst[8:], src[8:] {
		le.PutUint64(dst, logic(le.Uint64(dst), le.Uint64(src), t, op))
	}
	for i, s := range src {
		dst[i] = byte(logic(uint64(dst[i]), uint64(s), t, op))
	}
}

// goDivide is the division of Finish on the portable path.
func goDivide(buf []byte, t Type, n int) {
	switch t {
	case F32:
		overFloats(buf, float32(n), nan32)
	case F64:
		overFloats(buf, float64(n), nan64)
	case F16, BF16:
		overHalves(buf, t, float32(n))
	case I8:
		overInts[int8](buf, n)
	case I16:
		overInts[int16](buf, n)
	case I32:
		overInts[int32](buf, n)
	case I64:
		overInts[int64](buf, n)
	case U8:
		overInts[uint8](buf, n)
	case U16:
		overInts[uint16](buf, n)
	case U32:
		overInts[uint32](buf, n)
	case U64:
		overInts[uint64](buf, n)
	}
}

func overFloats[T float32 | float64](buf []byte, n, nan T) {
	if x, ok := view[T](buf); ok {
		divideFloats(x, n, nan)
		return
	}
	var a [block]T
	for len(buf) > 0 {
		k := load(a[:], buf)
		divideFloats(a[:k], n, nan)
		buf = buf[store(buf, a[:k]):]
	}
}

func overHalves(buf []byte, t Type, n float32) {
	var a [block]float32
	for len(buf) > 0 {
		k := min(len(buf)/2, block)
		goWiden(a[:k], buf, t)
		divideFloats(a[:k], n, nan32)
		goRound(buf, a[:k], t)
		buf = buf[2*k:]
	}
}

func overInts[T integer](buf []byte, n int) {
	if x, ok := view[T](buf); ok {
		divideInts(x, n)
		return
	}
	var a [block]T
	for len(buf) > 0 {
		k := load(a[:], buf)
		divideInts(a[:k], n)
		buf = buf[store(buf, a[:k]):]
	}
}
