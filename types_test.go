package allcast

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/reduce"
)

// Types and operators have the same values as in package reduce, which ranks send to each other.
func TestValuesMatchReduce(t *testing.T) {
	for mine, theirs := range map[DataType]reduce.Type{
		Float32: reduce.F32, Float64: reduce.F64, Float16: reduce.F16, BFloat16: reduce.BF16,
		Int8: reduce.I8, Int16: reduce.I16, Int32: reduce.I32, Int64: reduce.I64,
		Uint8: reduce.U8, Uint16: reduce.U16, Uint32: reduce.U32, Uint64: reduce.U64, Bool: reduce.Bool,
	} {
		if uint8(mine) != uint8(theirs) {
			t.Errorf("%v is %v", mine, theirs)
		}
	}
	for mine, theirs := range map[ReduceOp]reduce.Op{
		Sum: reduce.Sum, Average: reduce.Avg, Min: reduce.Min, Max: reduce.Max, Product: reduce.Prod,
		And: reduce.And, Or: reduce.Or, Xor: reduce.Xor, PremultipliedSum: reduce.PremulSum,
	} {
		if uint8(mine) != uint8(theirs) {
			t.Errorf("%v is %v", mine, theirs)
		}
	}
}

func TestAlgorithms(t *testing.T) {
	for _, op := range []string{"broadcast", "allgather"} {
		if !slices.Contains(Algorithms(op), engine.Multicast) {
			t.Errorf("%s: %v", op, Algorithms(op))
		}
	}
	if list := Algorithms("allreduce"); len(list) == 0 || slices.Contains(list, engine.Multicast) {
		t.Errorf("allreduce: %v", list)
	}
	if list := Algorithms("gossip"); list != nil {
		t.Errorf("gossip: %v", list)
	}
}

func TestTypeOf(t *testing.T) {
	type celsius float32
	type flag bool
	word, unsigned := Int64, Uint64
	if bits.UintSize == 32 {
		word, unsigned = Int32, Uint32
	}
	for _, tt := range []struct{ got, want DataType }{
		{TypeOf[float32](), Float32},
		{TypeOf[float64](), Float64},
		{TypeOf[celsius](), Float32},
		{TypeOf[int8](), Int8},
		{TypeOf[int16](), Int16},
		{TypeOf[int32](), Int32},
		{TypeOf[int64](), Int64},
		{TypeOf[uint8](), Uint8},
		{TypeOf[BF16](), BFloat16},
		{TypeOf[F16](), Float16},
		{TypeOf[int](), word},
		{TypeOf[uint](), unsigned},
		{TypeOf[bool](), Bool},
		{TypeOf[flag](), Bool},
		{TypeOf[uint32](), Uint32},
		{TypeOf[uint64](), Uint64},
	} {
		if tt.got != tt.want {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}

// The zero values are invalid, and names that do not exist are errors that list the valid ones.
func TestParse(t *testing.T) {
	for dtype := Float32; dtype <= Bool; dtype++ {
		if got, err := ParseDataType(dtype.String()); err != nil || got != dtype {
			t.Errorf("%v: %v, %v", dtype, got, err)
		}
	}
	for op := Sum; op <= PremultipliedSum; op++ {
		if got, err := ParseReduceOp(op.String()); err != nil || got != op {
			t.Errorf("%v: %v, %v", op, got, err)
		}
	}
	_, badType := ParseDataType("f8")
	_, badOp := ParseReduceOp("median")
	for err, want := range map[error]string{
		badType: `allcast: invalid argument: unknown element type "f8": ` +
			"want one of f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool",
		badOp: `allcast: invalid argument: unknown operator "median": ` +
			"want one of sum, avg, min, max, prod, and, or, xor, premul-sum",
	} {
		if !errors.Is(err, ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if DataType(0).Size() != 0 {
		t.Errorf("a type that is not set has %d bytes", DataType(0).Size())
	}
}

func TestHalves(t *testing.T) {
	for x, want := range map[float32]struct {
		bf16 BF16
		f16  F16
		text string // of both, joined
	}{
		0:      {0, 0, "0 0"},
		1:      {0x3f80, 0x3c00, "1 1"},
		-2.5:   {0xc020, 0xc100, "-2.5 -2.5"},
		0.1:    {0x3dcd, 0x2e66, "0.100097656 0.099975586"},
		100000: {0x47c3, 0x7c00, "99840 +Inf"},
	} {
		b, f := NewBF16(x), NewF16(x)
		if got := fmt.Sprint(b, " ", f); b != want.bf16 || f != want.f16 || got != want.text {
			t.Errorf("%v: %#04x and %#04x, %s; want %#04x and %#04x, %s", x, uint16(b), uint16(f), got,
				uint16(want.bf16), uint16(want.f16), want.text)
		}
		if NewBF16(b.Float32()) != b || NewF16(f.Float32()) != f {
			t.Errorf("%v: %v or %v does not survive the conversion to float32", x, b, f)
		}
	}
	nan := float32(math.NaN())
	if x := NewBF16(nan).Float32(); x == x {
		t.Errorf("NaN becomes %v as bfloat16", x)
	}
	if x := NewF16(nan).Float32(); x == x {
		t.Errorf("NaN becomes %v as half", x)
	}
}
