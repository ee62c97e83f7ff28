package reduce

import "unsafe"

type number interface {
	float32 | float64 | integer
}

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// combine is the arithmetic in Go, and defines the results of the assembly. nan replaces every NaN. For
// integers the compiler removes the comparison.
func combine[T number](dst, src []T, op Op, nan T) {
	dst = dst[:len(src)]
	switch op {
	case Sum, Avg, PremulSum:
		for i, s := range src {
			r := dst[i] + s
			dst[i] = r
			if isNaN(r) {
				dst[i] = nan
			}
		}
	case Min:
		for i, s := range src {
			r := min(dst[i], s) // minimum of IEEE 754-2019, by the Go specification
			dst[i] = r
			if isNaN(r) {
				dst[i] = nan
			}
		}
	case Max:
		for i, s := range src {
			r := max(dst[i], s)
			dst[i] = r
			if isNaN(r) {
				dst[i] = nan
			}
		}
	case Prod:
		for i, s := range src {
			r := dst[i] * s
			dst[i] = r
			if isNaN(r) {
				dst[i] = nan
			}
		}
	}
}

func isNaN[T number](x T) bool { return x != x }

func multiply[T float32 | float64](dst, src []T, factor, nan T) {
	dst = dst[:len(src)]
	for i, x := range src {
		r := x * factor
		dst[i] = r
		if isNaN(r) {
			dst[i] = nan
		}
	}
}

// logic combines eight bytes, of integers of any width or of eight Bools.
func logic(a, b uint64, t Type, op Op) uint64 {
	if t == Bool {
		a, b = truth(a), truth(b)
	}
	switch op {
	case And:
		return a & b
	case Or:
		return a | b
	default:
		return a ^ b
	}
}

// truth sets every byte that is not 0 to 1. The addition carries into the top bit of a byte if one of its
// other bits is set, and never beyond it.
func truth(x uint64) uint64 {
	const low7, ones = 0x7f7f7f7f7f7f7f7f, 0x0101010101010101
	return (x&low7 + low7 | x) >> 7 & ones
}

func divideFloats[T float32 | float64](dst []T, n, nan T) {
	for i, x := range dst {
		r := x / n
		dst[i] = r
		if isNaN(r) {
			dst[i] = nan
		}
	}
}

// divideInts truncates toward zero, as Go's division does. Processors divide 32 bits in half the time
// of 64.
func divideInts[T integer](dst []T, n int) {
	signed := ^T(0) < 0
	switch narrow := unsafe.Sizeof(T(0)) <= 4 && n <= 1<<31-1; {
	case narrow && signed:
		for i, x := range dst {
			dst[i] = T(int32(x) / int32(n))
		}
	case narrow:
		for i, x := range dst {
			dst[i] = T(uint32(x) / uint32(n))
		}
	case signed:
		for i, x := range dst {
			dst[i] = T(int64(x) / int64(n))
		}
	default:
		for i, x := range dst {
			dst[i] = T(uint64(x) / uint64(n))
		}
	}
}
