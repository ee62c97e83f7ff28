// Package reduce combines buffers of numbers, element by element: the
// arithmetic of Reduce, Reduce-Scatter and Allreduce.
//
// Buffers are bytes, because they are what the network delivered: elements are
// little-endian and may start at any address. One call combines two buffers
// ([Into]); who calls it in which order is the algorithm's business, and since
// floating-point addition is not associative, so is the exact result. What
// this package promises is that one call gives the same bits on every
// platform and on every code path. Then all ranks that combine the same
// operands in the same order hold the same bits.
//
// Most of that is IEEE 754, which rounds each operation in one way only (to
// nearest, ties to even; the caller's thread must not have been set to flush
// denormals, as -ffast-math does). What the standard leaves open is fixed here:
//
//   - NaN. A result that is NaN is always the same, positive quiet NaN with an
//     empty payload (0x7fc00000, 0x7ff8000000000000, f16 0x7e00, bf16 0x7fc0).
//     Processors differ in which operand's payload survives and in the sign of
//     a new NaN, so none of that is kept.
//   - Min and Max are the minimum and maximum of IEEE 754-2019: NaN if either
//     operand is NaN, and -0 is less than +0. They are therefore commutative
//     and associative to the last bit.
//   - A zero sum of opposite values is +0; -0 remains only when both are -0.
//   - f16 and bf16 are computed in f32 and rounded back, ties to even, values
//     too large to Inf. For one Sum or Prod this equals the correctly rounded
//     result, since f32 has at least twice the digits and two.
//   - Integers wrap around, in two's complement.
//   - Average is Sum, then [Finish]: float division for floats, for integers a
//     division that truncates toward zero. A sum that wrapped stays wrong.
//
// With f16 and bf16, [Into] rounds at every step: over P ranks the error grows
// with P-1 half-precision roundings. An executor that can keep twice the memory
// avoids it with an accumulator of float32: [Widen] the first operand,
// [Accumulate] the others, [FinishAcc], and [Round] once at the end.
//
// On amd64 with AVX2 and F16C the work is done in assembly, everywhere else, or
// with the build tag purego, in Go; [Path] tells which. The tests compare both.
package reduce
