package reduce

import "fmt"

// Type is the type of a buffer's elements. The zero value is invalid.
type Type uint8

// Element types. BF16 is the upper half of an F32, and F16 is IEEE 754 binary16. A Bool is one byte; any
// value but 0 is true.
const (
	F32 Type = iota + 1
	F64
	F16
	BF16
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
	Bool

	numTypes = iota + 1
)

// types lists the names of each type: the short name, then an alias.
var types = [numTypes][]string{
	F32: {"f32", "float32"}, F64: {"f64", "float64"}, F16: {"f16", "float16"}, BF16: {"bf16", "bfloat16"},
	I8: {"i8", "int8"}, I16: {"i16", "int16"}, I32: {"i32", "int32"}, I64: {"i64", "int64"},
	U8: {"u8", "uint8"}, U16: {"u16", "uint16"}, U32: {"u32", "uint32"}, U64: {"u64", "uint64"},
	Bool: {"bool"},
}

var sizes = [numTypes]int{
	F32: 4, F64: 8, F16: 2, BF16: 2, I8: 1, I16: 2, I32: 4, I64: 8, U8: 1, U16: 2, U32: 4, U64: 8, Bool: 1,
}

func (t Type) valid() bool { return t != 0 && t < numTypes }

func (t Type) isFloat() bool { return t >= F32 && t <= BF16 }

// String returns the short name, which ParseType accepts.
func (t Type) String() string {
	if !t.valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return types[t][0]
}

// Size returns the size of an element in bytes, or 0 for an invalid type.
func (t Type) Size() int {
	if !t.valid() {
		return 0
	}
	return sizes[t]
}

// ParseType parses the name of a type: a short one such as f32, bf16, i64, u8 or bool, or the long form,
// such as float32, bfloat16, int64 or uint8.
func ParseType(s string) (Type, error) {
	i, err := parseName(s, types[:])
	if err != nil {
		return 0, fmt.Errorf("%w %w", ErrType, err)
	}
	return Type(i), nil
}
