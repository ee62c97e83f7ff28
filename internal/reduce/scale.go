package reduce

// Scale sets dst[i] to src[i] times factor, for float types. PremulSum is Sum over inputs that were
// scaled. Both buffers have the same length, a multiple of the element size. They must not overlap,
// unless they are the same memory. dst is unchanged after an error.
//
// F64 multiplies in f64. The other types multiply in f32, with factor rounded to f32; F16 and BF16 results
// are rounded once more. NaN results are canonical, as in Into, even if factor is 1.
func Scale(dst, src []byte, t Type, factor float64) error {
	if err := check(dst, src, t, PremulSum); err != nil {
		return err
	}
	if simdScale(dst, src, t, factor) {
		return nil
	}
	switch t {
	case F32:
		scale(dst, src, float32(factor), nan32)
	case F64:
		scale(dst, src, factor, nan64)
	default:
		scaleHalves(dst, src, t, float32(factor))
	}
	return nil
}

func scale[T float32 | float64](dst, src []byte, factor, nan T) {
	d, inPlace := view[T](dst)
	s, ok := view[T](src)
	if inPlace && ok {
		multiply(d, s, factor, nan)
		return
	}
	var a [block]T
	for len(dst) > 0 {
		n := load(a[:], src)
		multiply(a[:n], a[:n], factor, nan)
		used := store(dst, a[:n])
		dst, src = dst[used:], src[used:]
	}
}

func scaleHalves(dst, src []byte, t Type, factor float32) {
	var a [block]float32
	for len(dst) > 0 {
		n := min(len(dst)/2, block)
		goWiden(a[:n], src, t)
		multiply(a[:n], a[:n], factor, nan32)
		goRound(dst, a[:n], t)
		dst, src = dst[2*n:], src[2*n:]
	}
}
