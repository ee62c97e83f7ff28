package reduce

import "fmt"

// The functions in this file keep an f32 accumulator for F16 or BF16 data. A reduction of many operands
// then rounds to half precision once. Their callers have checked the user's sizes. They panic on a
// wrong type, operation or length, because that is a bug.

// Widen sets acc to the elements of src, exactly. It initializes an accumulator. Zero would be wrong,
// because 0 + -0 is not -0.
func Widen(acc []float32, src []byte, t Type) {
	checkHalf(acc, src, t)
	if !simdWiden(acc, src, t) {
		goWiden(acc, src, t)
	}
}

// Accumulate sets acc[i] to acc[i] op src[i], with src converted to f32.
func Accumulate(acc []float32, src []byte, t Type, op Op) {
	checkHalf(acc, src, t)
	if !op.valid() {
		panic(fmt.Sprintf("reduce: accumulate with %v", op))
	}
	if !simdAccumulate(acc, src, t, op) {
		goAccumulate(acc, src, t, op)
	}
}

// FinishAcc is Finish for an accumulator: Avg divides it by n, and the other operations leave it
// unchanged.
func FinishAcc(acc []float32, op Op, n int) {
	if !op.valid() || n < 1 {
		panic(fmt.Sprintf("reduce: finish %v of %d operands", op, n))
	}
	if op == Avg && !simdDivide(memory(acc), F32, n) {
		divideFloats(acc, float32(n), nan32)
	}
}

// Round sets dst to the accumulator rounded to t: to nearest, ties to even. Values that are too large
// become Inf.
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
	// 2*len(acc) could overflow a 32-bit int.
	if len(half)%2 != 0 || len(half)/2 != len(acc) {
		panic(fmt.Sprintf("reduce: %d bytes of %v for %d accumulators", len(half), t, len(acc)))
	}
}
