package reduce

import (
	"encoding/binary"
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

// f16ToF32 converts exactly.
func f16ToF32(h uint16) float32 {
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

// f32ToF16 rounds to nearest, ties to even.
func f32ToF16(f float32) uint16 {
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

// bf16ToF32 converts exactly.
func bf16ToF32(h uint16) float32 {
	if h&0x7fff > inf32>>16 {
		return nan32
	}
	return math.Float32frombits(uint32(h) << 16)
}

// f32ToBF16 rounds to nearest, ties to even.
func f32ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > inf32 {
		return nanBF16
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16) // a carry into Inf is correct
}

// goWiden and goRound process four elements at a time, to save bounds checks.

func goWiden(dst []float32, src []byte, t Type) {
	widen := bf16ToF32
	if t == F16 {
		widen = f16ToF32
	}
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		w := binary.LittleEndian.Uint64(src)
		if t == F16 {
			dst[0], dst[1] = f16ToF32(uint16(w)), f16ToF32(uint16(w>>16))
			dst[2], dst[3] = f16ToF32(uint16(w>>32)), f16ToF32(uint16(w>>48))
		} else {
			dst[0], dst[1] = bf16ToF32(uint16(w)), bf16ToF32(uint16(w>>16))
			dst[2], dst[3] = bf16ToF32(uint16(w>>32)), bf16ToF32(uint16(w>>48))
		}
	}
	for i := range dst {
		dst[i] = widen(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func goRound(dst []byte, src []float32, t Type) {
	round := f32ToBF16
	if t == F16 {
		round = f32ToF16
	}
	for ; len(src) >= 4 && len(dst) >= 8; dst, src = dst[8:], src[4:] {
		var w uint64
		if t == F16 {
			w = uint64(f32ToF16(src[0])) | uint64(f32ToF16(src[1]))<<16 |
				uint64(f32ToF16(src[2]))<<32 | uint64(f32ToF16(src[3]))<<48
		} else {
			w = uint64(f32ToBF16(src[0])) | uint64(f32ToBF16(src[1]))<<16 |
				uint64(f32ToBF16(src[2]))<<32 | uint64(f32ToBF16(src[3]))<<48
		}
		binary.LittleEndian.PutUint64(dst, w)
	}
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], round(f))
	}
}
