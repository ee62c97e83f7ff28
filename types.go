package allcast

import (
	"strconv"

	"github.com/allcast/allcast/internal/reduce"
)

// DataType is the element type of a buffer. Elements are little-endian. The zero value is invalid: calls
// that combine elements return an error that matches ErrInvalid.
type DataType uint8

// Element types. Float16 (IEEE 754 binary16) and BFloat16 are computed in float32 and rounded back after
// every step. A Bool is one byte, and any value but 0 is true. Go slices of these types work with the typed
// functions, such as AllreduceSlice, except Uint16; see Number.
const (
	Float32 DataType = iota + 1
	Float64
	Float16
	BFloat16
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Bool
)

// String returns the short name: f32, bf16, i64, u8, bool and so on.
func (t DataType) String() string { return reduce.Type(t).String() }

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (t DataType) Size() int { return reduce.Type(t).Size() }

// ParseDataType parses a short name, such as f32, bf16, i64, u8 or bool, or a long one, such as float32,
// bfloat16, int64 or uint8.
func ParseDataType(s string) (DataType, error) {
	t, err := reduce.ParseType(s)
	if err != nil {
		return 0, invalid("%v", err)
	}
	return DataType(t), nil
}

// ReduceOp is the operator that combines the elements of different ranks. The zero value is invalid: calls
// that combine elements return an error that matches ErrInvalid.
type ReduceOp uint8

// Reduction operators. All but the last four apply to all element types except Bool. An operator that does
// not apply to the type of a call makes the call fail with an error that matches ErrInvalid.
//
// Integers wrap around on overflow. If an element is NaN on any rank, its Sum, Average, Min, Max, Product and
// PremultipliedSum are NaN. Min and Max treat -0 as less than +0.
const (
	// Sum adds the elements of all ranks.
	Sum ReduceOp = iota + 1
	// Average is the sum divided by the number of ranks. Floats are rounded to nearest, ties to even, after the
	// division. Integers are rounded toward zero: the average of 1 and 2 is 1, that of -1 and -2 is -1. The
	// sum of integers wraps around before the division, so it has to fit the type for the average to be right.
	Average
	// Min is the smallest element.
	Min
	// Max is the largest element.
	Max
	// Product multiplies the elements of all ranks.
	Product
	// And applies to integers, bit by bit, and to Bool: the result is 1 if all ranks have a true element, else 0.
	And
	// Or applies to integers, bit by bit, and to Bool: the result is 1 if a rank has a true element, else 0.
	Or
	// Xor applies to integers, bit by bit, and to Bool: the result is 1 if an odd number of ranks have a true
	// element, else 0.
	Xor
	// PremultipliedSum applies to floats. Every rank multiplies its elements by a factor of its own before they
	// are added, as when gradients of batches of different sizes are averaged.
	PremultipliedSum
)

// String returns the short name: sum, avg, min, max, prod, and, or, xor or premul-sum.
func (o ReduceOp) String() string { return reduce.Op(o).String() }

// ParseReduceOp parses a short name, as String returns it, or a long one: average, minimum, maximum, product
// or premultiplied-sum. It also accepts the names of other libraries: band, bor, bxor and premul_sum.
func ParseReduceOp(s string) (ReduceOp, error) {
	o, err := reduce.ParseOp(s)
	if err != nil {
		return 0, invalid("%v", err)
	}
	return ReduceOp(o), nil
}

// BF16 is a bfloat16, the upper half of a float32, as its bits. This converts a []uint16 that holds such bits,
// without a copy:
//
//	unsafe.Slice((*allcast.BF16)(unsafe.SliceData(s)), len(s))
type BF16 uint16

// NewBF16 rounds x to nearest, ties to even. Values that are too large become infinite.
func NewBF16(x float32) BF16 { return BF16(reduce.F32ToBF16(x)) }

// Float32 returns the value of x, exactly.
func (x BF16) Float32() float32 { return reduce.BF16ToF32(uint16(x)) }

// String returns the value of x in decimal.
func (x BF16) String() string { return formatFloat(x.Float32()) }

// F16 is an IEEE 754 half-precision number (binary16), as its bits. A []uint16 that holds such bits can be
// converted like that of a [BF16].
type F16 uint16

// NewF16 rounds x to nearest, ties to even. Values that are too large become infinite.
func NewF16(x float32) F16 { return F16(reduce.F32ToF16(x)) }

// Float32 returns the value of x, exactly.
func (x F16) Float32() float32 { return reduce.F16ToF32(uint16(x)) }

// String returns the value of x in decimal.
func (x F16) String() string { return formatFloat(x.Float32()) }

func formatFloat(x float32) string { return strconv.FormatFloat(float64(x), 'g', -1, 32) }
