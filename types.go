package allcast

import (
	"fmt"

	"github.com/allcast/allcast/internal/reduce"
)

// DataType is the type of a buffer's elements, which are little-endian.
type DataType uint8

// Element types. Float16 and BFloat16 are computed in float32 and rounded back.
const (
	Float32  = DataType(reduce.F32)
	Float64  = DataType(reduce.F64)
	Float16  = DataType(reduce.F16)
	BFloat16 = DataType(reduce.BF16)
	Int8     = DataType(reduce.I8)
	Int16    = DataType(reduce.I16)
	Int32    = DataType(reduce.I32)
	Int64    = DataType(reduce.I64)
	Uint8    = DataType(reduce.U8)
	Uint16   = DataType(reduce.U16)
	Uint32   = DataType(reduce.U32)
	Uint64   = DataType(reduce.U64)
)

// String returns the short name: f32, bf16, i64 and so on.
func (t DataType) String() string { return reduce.Type(t).String() }

// Size is the size of an element in bytes, 0 if there is no such type.
func (t DataType) Size() int { return reduce.Type(t).Size() }

// ParseDataType reads a short name.
func ParseDataType(s string) (DataType, error) {
	t, err := reduce.ParseType(s)
	if err != nil {
		return 0, fmt.Errorf("allcast: %w: %w", ErrInvalid, err)
	}
	return DataType(t), nil
}

// ReduceOp says how elements of different ranks become one.
type ReduceOp uint8

// Reductions.
const (
	Sum     = ReduceOp(reduce.Sum)
	Average = ReduceOp(reduce.Avg)
	Min     = ReduceOp(reduce.Min)
	Max     = ReduceOp(reduce.Max)
	Product = ReduceOp(reduce.Prod)
)

// String returns the short name: sum, avg, min, max or prod.
func (o ReduceOp) String() string { return reduce.Op(o).String() }

// ParseReduceOp reads a name, short or in full.
func ParseReduceOp(s string) (ReduceOp, error) {
	o, err := reduce.ParseOp(s)
	if err != nil {
		return 0, fmt.Errorf("allcast: %w: %w", ErrInvalid, err)
	}
	return ReduceOp(o), nil
}
