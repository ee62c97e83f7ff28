package reduce

import "fmt"

// The functions here keep an f32 accumulator for F16 or BF16 data, so that a
// reduction of many operands rounds to half precision once. They are called by
// executors that have checked the user's sizes, so a mismatch is a bug: other
// types and operations, or lengths that differ, panic.

// Widen sets acc to the elements of src, which is exact. It is how an
// accumulator begins: zero would not do, as 0 + -0 is not -0.
func Widen(acc []float32, src []byte, t Type) {
	checkHalf(acc, src, t)
	if !simdWiden(acc, src, t) {
		goWiden(acc, src, t)
	}
}

// Accumulate sets acc[i] to acc[i] op src[i], src being converted to f32.
func Accumulate(acc []float32, src []byte, t Type, op Op) {
	checkHalf(acc, src, t)
	if !op.valid() {
		panic(fmt.Sprintf("reduce: accumulate with %v", op))
	}
	if !simdAccumulate(acc, src, t, op) {
		goAccumulate(acc, src, t, op)
	}
}

// FinishAcc is Finish for an accumulator: Avg divides it by n, the other
// operations leave it as it is.
func FinishAcc(acc []float32, op Op, n int) {
	if !op.valid() || n < 1 {
		panic(fmt.Sprintf("reduce: finish %v of %d operands", op, n))
	}
	if op == Avg && !simdDivide(memory(acc), F32, n) {
		divideFloats(acc, float32(n), nan32)
	}
}

// Round sets dst to the accumulator rounded to t: to nearest, ties to even, too
// large to Inf.
func Round(dst []byte, acc []float32, t Type) {
	checkHalf(acc, dst, t)
	if !simdRound(dst, acc, t) {
		goRound(dst, acc, t)
	}
}

func checkHalf(acc []float32, half []byte, t Type) {
	if t != F16 && t != BF16 {
		panic(fmt.Sprintf("reduce: an f32 accumulator for %v", t))
	}
	// Not 2*len(acc): it could overflow where int has 32 bits.
	if len(half)%2 != 0 || len(half)/2 != len(acc) {
		panic(fmt.Sprintf("reduce: %d bytes of %v for %d accumulators", len(half), t, len(acc)))
	}
}
