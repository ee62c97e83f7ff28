package reduce

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The canonical NaN of each type. math.NaN() is different: it has a payload.
var (
	nan32 = math.Float32frombits(0x7fc00000)
	nan64 = math.Float64frombits(0x7ff8000000000000)
)

const (
	nanF16  = 0x7e00
	infF16  = 0x7c00
	nanBF16 = 0x7fc0

	inf32 = 0x7f800000

	// The exponent bias is 127 in f32 and 15 in f16. The fraction has 23 bits in f32 and 10 in f16.
	rebias = (127 - 15) << 23
	shift  = 23 - 10
)

// F16ToF32 converts exactly; all NaNs become one.
func F16ToF32(h uint16) float32 {
	sign, m := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case m > infF16:
		return nan32
	case m == infF16:
		return math.Float32frombits(sign | inf32)
	case m < 1<<10: // denormal: m units of 2^-24, which are normal numbers in f32
		return math.Float32frombits(sign | math.Float32bits(float32(m)*0x1p-24))
	}
	return math.Float32frombits(sign | (m<<shift + rebias))
}

// F32ToF16 rounds to nearest, ties to even. Values that are too large become Inf.
func F32ToF16(f float32) uint16 {
	u := math.Float32bits(f)
	sign, m := uint16(u>>16)&0x8000, u&0x7fffffff
	switch {
	case m > inf32:
		return nanF16
	case m >= 0x477ff000: // 65520, halfway from the largest f16 to 2^16
		return sign | infF16
	case m < 0x38800000: // 2^-14: the result is denormal, a multiple of 2^-24
		// Floats from 1/2 to 1 are multiples of 2^-24 too, so the addition rounds correctly.
		half := math.Float32frombits(m) + 0.5
		return sign | uint16(math.Float32bits(half)-0x3f000000)
	}
	m += 1<<(shift-1) - 1 + m>>shift&1 // a carry into the exponent is correct
	return sign | uint16((m-rebias)>>shift)
}

// BF16ToF32 converts exactly; all NaNs become one.
func BF16ToF32(h uint16) float32 {
	if h&0x7fff > inf32>>16 {
		return nan32
	}
	return math.Float32frombits(uint32(h) << 16)
}

// F32ToBF16 rounds to nearest, ties to even. Values that are too large become Inf.
func F32ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > inf32 {
		return nanBF16
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16) // a carry into Inf is correct
}

// Widen sets dst to the elements of src, exactly, and Round is the inverse: to nearest, ties to even, with
// Inf for values that are too large. Both are for F16 and BF16. They panic on another type and on
// lengths that differ, because that is a bug of the caller.
func Widen(dst []float32, src []byte, t Type) {
	checkHalf(dst, src, t)
	if !simdWiden(dst, src, t) {
		goWiden(dst, src, t)
	}
}

// Round rounds the elements of src to t; see Widen.
func Round(dst []byte, src []float32, t Type) {
	checkHalf(src, dst, t)
	if !simdRound(dst, src, t) {
		goRound(dst, src, t)
	}
}

func checkHalf(wide []float32, half []byte, t Type) {
	if t != F16 && t != BF16 {
		panic(fmt.Sprintf("reduce: conversion between f32 and %v", t))
	}
	// 2*len(wide) could overflow a 32-bit int.
	if len(half)%2 != 0 || len(half)/2 != len(wide) {
		panic(fmt.Sprintf("reduce: %d bytes of %v for %d elements of f32", len(half), t, len(wide)))
	}
}

// goWiden and goRound process four elements at a time, to save bounds checks.

func goWiden(dst []float32, src []byte, t Type) {
	widen := BF16ToF32
	if t == F16 {
		widen = F16ToF32
	}
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		w := binary.LittleEndian.Uint64(src)
		if t == F16 {
			dst[0], dst[1] = F16ToF32(uint16(w)), F16ToF32(uint16(w>>16))
			dst[2], dst[3] = F16ToF32(uint16(w>>32)), F16ToF32(uint16(w>>48))
		} else {
			dst[0], dst[1] = BF16ToF32(uint16(w)), BF16ToF32(uint16(w>>16))
			dst[2], dst[3] = BF16ToF32(uint16(w>>32)), BF16ToF32(uint16(w>>48))
		}
	}
	for i := range dst {
		dst[i] = widen(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func goRound(dst []byte, src []float32, t Type) {
	round := F32ToBF16
	if t == F16 {
		round = F32ToF16
	}
	for ; len(src) >= 4 && len(dst) >= 8; dst, src = dst[8:], src[4:] {
		var w uint64
		if t == F16 {
			w = uint64(F32ToF16(src[0])) | uint64(F32ToF16(src[1]))<<16 |
				uint64(F32ToF16(src[2]))<<32 | uint64(F32ToF16(src[3]))<<48
		} else {
			w = uint64(F32ToBF16(src[0])) | uint64(F32ToBF16(src[1]))<<16 |
				uint64(F32ToBF16(src[2]))<<32 | uint64(F32ToBF16(src[3]))<<48
		}
		binary.LittleEndian.PutUint64(dst, w)
	}
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], round(f))
	}
}
