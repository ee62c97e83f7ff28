//go:build !purego

package reduce

// simd enables the assembly. Tests switch it off.
var simd = probe()

// Path names the active implementation: "go", or "avx2" for assembly.
func Path() string {
	if simd {
		return "avx2"
	}
	return "go"
}

const (
	// minSIMD is the minimum size for the assembly: one vector.
	minSIMD = 32

	// piece limits the time in assembly to some tens of microseconds: the scheduler cannot
	// preempt it, and a garbage collection would have to wait.
	piece = 256 << 10
)

func simdInto(dst, src []byte, t Type, op Op) bool {
	if !simd || len(dst) < minSIMD {
		return false
	}
	k := intoKernels[t][op]
	if k == nil {
		return false
	}
	for len(dst) > 0 {
		n := next(len(dst))
		k(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n:]
	}
	return true
}

// next returns the length of the next piece of n bytes, such that no piece is too small.
func next(n int) int {
	if n < 2*piece {
		return n
	}
	return piece
}

func simdDivide(buf []byte, t Type, n int) bool {
	if !simd || len(buf) < minSIMD {
		return false
	}
	switch n32, n64 := float32(n), float64(n); t {
	case F32:
		inPieces(buf, func(p *byte, k int) { f32Div(p, &n32, k) })
	case F64:
		inPieces(buf, func(p *byte, k int) { f64Div(p, &n64, k) })
	case F16:
		inPieces(buf, func(p *byte, k int) { f16Div(p, &n32, k) })
	case BF16:
		inPieces(buf, func(p *byte, k int) { bf16Div(p, &n32, k) })
	default:
		return false // Go code divides integers
	}
	return true
}

func inPieces(buf []byte, f func(p *byte, n int)) {
	for len(buf) > 0 {
		n := next(len(buf))
		f(&buf[0], n)
		buf = buf[n:]
	}
}

func simdScale(dst, src []byte, t Type, factor float64) bool {
	if !simd || len(dst) < minSIMD {
		return false
	}
	f32, f64 := float32(factor), factor
	for len(dst) > 0 {
		n := next(len(dst))
		switch t {
		case F32:
			f32Scale(&dst[0], &src[0], n, &f32)
		case F64:
			f64Scale(&dst[0], &src[0], n, &f64)
		case F16:
			f16Scale(&dst[0], &src[0], n, &f32)
		default:
			bf16Scale(&dst[0], &src[0], n, &f32)
		}
		dst, src = dst[n:], src[n:]
	}
	return true
}

func simdWiden(acc []float32, src []byte, t Type) bool {
	if !simd || len(src) < minSIMD {
		return false
	}
	for len(src) > 0 {
		n := next(len(src))
		if t == F16 {
			f16Widen(&acc[0], &src[0], n)
		} else {
			bf16Widen(&acc[0], &src[0], n)
		}
		acc, src = acc[n/2:], src[n:]
	}
	return true
}

func simdRound(dst []byte, acc []float32, t Type) bool {
	if !simd || len(dst) < minSIMD {
		return false
	}
	for len(dst) > 0 {
		n := next(len(dst))
		if t == F16 {
			f16Round(&dst[0], &acc[0], n)
		} else {
			bf16Round(&dst[0], &acc[0], n)
		}
		dst, acc = dst[n:], acc[n/2:]
	}
	return true
}
