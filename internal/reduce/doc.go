// Package reduce combines buffers of numbers element by element: the arithmetic of Reduce,
// Reduce-Scatter and Allreduce.
//
// Buffers are bytes as the network delivers them: elements are little-endian and may start at any
// address. One call combines two buffers ([Into]). The algorithm decides the order of calls.
// Floating-point addition is not associative, so the order also determines the exact result. This
// package guarantees that one call gives the same bits on every platform and on every code path. All
// ranks that combine the same operands in the same order therefore hold the same bits.
//
// Most of that follows from IEEE 754, which rounds each operation in exactly one way (to nearest, ties
// to even). The caller's thread must not flush denormals, as -ffast-math does. This package fixes what
// the standard leaves open:
//
//   - NaN. A NaN result is always the same positive quiet NaN with an empty payload (0x7fc00000,
//     0x7ff8000000000000, f16 0x7e00, bf16 0x7fc0). Processors differ in which operand's payload
//     survives and in the sign of a new NaN, so neither is kept.
//   - Min and Max are the minimum and maximum of IEEE 754-2019: NaN if either operand is NaN, and -0 is
//     less than +0. They are therefore commutative and associative to the last bit.
//   - A zero sum of opposite values is +0. The result is -0 only if both operands are -0.
//   - f16 and bf16 are computed in f32 and rounded back, ties to even; values that are too large become
//     Inf. For one Sum or Prod this equals the correctly rounded result, because f32 has at least twice
//     as many digits plus two.
//   - Integers wrap around in two's complement.
//   - Average is Sum followed by [Finish]: a float division for floats, and a division that truncates
//     toward zero for integers. A sum that wrapped stays wrong.
//   - And, Or and Xor work on the bits of integers. A Bool is true unless its byte is 0; results are 0 or 1.
//   - A premultiplied sum is Sum over inputs that [Scale] has multiplied, each by a factor of its rank.
//
// With f16 and bf16, [Into] rounds at every step: over P ranks the error grows with P-1 half-precision
// roundings.
//
// On amd64 with AVX2 and F16C, assembly does the work. Elsewhere, or with the build tag purego, Go code
// does. [Path] returns which one is in use. The tests compare both.
package reduce
