package reduce

import (
	"fmt"
	"strings"
)

// Type is the type of a buffer's elements.
type Type uint8

// Element types. BF16 is the upper half of an F32, and F16 is IEEE 754 binary16.
const (
	F32 Type = iota
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

	numTypes = iota
)

var types = [numTypes]struct {
	name string
	size int
}{
	F32: {"f32", 4}, F64: {"f64", 8}, F16: {"f16", 2}, BF16: {"bf16", 2},
	I8: {"i8", 1}, I16: {"i16", 2}, I32: {"i32", 4}, I64: {"i64", 8},
	U8: {"u8", 1}, U16: {"u16", 2}, U32: {"u32", 4}, U64: {"u64", 8},
}

func (t Type) valid() bool { return t < numTypes }

// String returns the name, which ParseType accepts.
func (t Type) String() string {
	if !t.valid() {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return types[t].name
}

// Size returns the size of an element in bytes, or 0 for an invalid type.
func (t Type) Size() int {
	if !t.valid() {
		return 0
	}
	return types[t].size
}

// ParseType parses the name of a type, such as "f32" or "u8".
func ParseType(s string) (Type, error) {
	names := make([]string, numTypes)
	for t := range types {
		if types[t].name == s {
			return Type(t), nil
		}
		names[t] = types[t].name
	}
	return 0, fmt.Errorf("%w: %q: want one of %s", ErrType, s, strings.Join(names, ", "))
}
