package allcast

import (
	"fmt"

	"github.com/allcast/allcast/internal/reduce"
)

// DataType is the element type of a buffer. Elements are little-endian.
type DataType uint8

// Element types. Float16 and BFloat16 are computed in float32 and rounded back.
const (
	Float32 DataType = iota
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
)

// String returns the short name: f32, bf16, i64 and so on.
func (t DataType) String() string { return reduce.Type(t).String() }

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (t DataType) Size() int { return reduce.Type(t).Size() }

// ParseDataType parses a short name.
func ParseDataType(s string) (DataType, error) {
	t, err := reduce.ParseType(s)
	if err != nil {
		return 0, fmt.Errorf("allcast: %w: %w", ErrInvalid, err)
	}
	return DataType(t), nil
}

// ReduceOp is the operator that combines the elements of different ranks.
type ReduceOp uint8

// Reduction operators.
const (
	Sum ReduceOp = iota
	Average
	Min
	Max
	Product
)

// String returns the short name: sum, avg, min, max or prod.
func (o ReduceOp) String() string { return reduce.Op(o).String() }

// ParseReduceOp parses a short or full name.
func ParseReduceOp(s string) (ReduceOp, error) {
	o, err := reduce.ParseOp(s)
	if err != nil {
		return 0, fmt.Errorf("allcast: %w: %w", ErrInvalid, err)
	}
	return ReduceOp(o), nil
}
