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
	case Sum, Avg:
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
