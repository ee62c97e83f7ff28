package reduce

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	names := []string{"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
	sizes := []int{4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8}
	for i, name := range names {
		typ, err := ParseType(name)
		if err != nil || typ != Type(i) || typ.String() != name || typ.Size() != sizes[i] {
			t.Errorf("%s: %v of %d bytes, %v", name, typ, typ.Size(), err)
		}
	}
	for i, name := range []string{"sum", "avg", "min", "max", "prod"} {
		op, err := ParseOp(name)
		if err != nil || op != Op(i) || op.String() != name {
			t.Errorf("%s: %v, %v", name, op, err)
		}
	}
	for name, want := range map[string]Op{"average": Avg, "product": Prod, "minimum": Min, "maximum": Max} {
		if op, err := ParseOp(name); err != nil || op != want {
			t.Errorf("%s: %v, %v", name, op, err)
		}
	}
	if _, err := ParseType("f8"); !errors.Is(err, ErrType) {
		t.Errorf("f8: %v", err)
	}
	if _, err := ParseOp("mean"); !errors.Is(err, ErrOp) {
		t.Errorf("mean: %v", err)
	}
	if got := Type(99).String() + Op(99).String(); got != "Type(99)Op(99)" || Type(99).Size() != 0 {
		t.Errorf("the unknown type is %s with %d bytes", got, Type(99).Size())
	}
}

func TestErrors(t *testing.T) {
	buf := make([]byte, 64)
	for _, c := range []struct {
		name string
		err  error
		want error
	}{
		{"lengths differ", Into(buf, buf[:60], F32, Sum), ErrSize},
		{"half an element", Into(buf[:63], buf[:63], F32, Sum), ErrSize},
		{"unknown type", Into(buf, buf, numTypes, Sum), ErrType},
		{"unknown op", Into(buf, buf, F32, numOps), ErrOp},
		{"finish half an element", Finish(buf[:63], F64, Avg, 1), ErrSize},
		{"finish an unknown type", Finish(buf, 200, Avg, 1), ErrType},
		{"finish an unknown op", Finish(buf, F64, 200, 1), ErrOp},
		{"finish no operand", Finish(buf, F64, Avg, 0), ErrRanks},
		{"finish less than none", Finish(buf, F64, Sum, -1), ErrRanks},
		{"nothing", Into(nil, nil, U64, Prod), nil},
		{"finish nothing", Finish(nil, F16, Avg, 3), nil},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
}

// The package fixes what IEEE 754 or C leave open.
func TestChoices(t *testing.T) {
	nan, inf, negZero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, c := range []struct {
		op         Op
		a, b, want float64
	}{
		{Sum, nan, 1, nan},
		{Sum, 1, nan, nan},
		{Sum, inf, -inf, nan},
		{Sum, inf, inf, inf},
		{Sum, negZero, negZero, negZero},
		{Sum, negZero, 0, 0},
		{Sum, 3, -3, 0},
		{Prod, inf, 0, nan},
		{Prod, nan, 0, nan},
		{Prod, -1, 0, negZero},
		{Min, nan, -inf, nan},
		{Min, -inf, nan, nan},
		{Min, 0, negZero, negZero},
		{Min, negZero, 0, negZero},
		{Min, 2, 1, 1},
		{Max, nan, inf, nan},
		{Max, inf, nan, nan},
		{Max, 0, negZero, 0},
		{Max, negZero, 0, 0},
		{Max, 2, 1, 2},
	} {
		for _, typ := range []Type{F32, F64, F16, BF16} {
			f := formats[typ]
			a, b, want := f.bits(c.a), f.bits(c.b), f.bits(c.want)
			for _, path := range paths() {
				// The result is the same in every lane, and in the last vector.
				dst, src := bytes.Repeat(pack(typ, a), 45), bytes.Repeat(pack(typ, b), 45)
				on(path, func() { mustInto(t, dst, src, typ, c.op) })
				if !bytes.Equal(dst, bytes.Repeat(pack(typ, want), 45)) {
					t.Errorf("%s: %v: %v %v %v = %x, want %x", path, typ, c.a, c.op, c.b, dst[:typ.Size()], want)
				}
			}
		}
	}
}

// Every type and operation equals exact arithmetic rounded once, to the bit.
func TestIntoIsExact(t *testing.T) {
	for _, typ := range allTypes() {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				op := rapid.SampledFrom(allOps()).Draw(t, "op")
				as := rapid.SliceOfN(element(typ), 0, 40).Draw(t, "dst")
				bs := rapid.SliceOfN(element(typ), len(as), len(as)).Draw(t, "src")
				for _, path := range paths() {
					dst, src := pack(typ, as...), pack(typ, bs...)
					on(path, func() {
						if err := Into(dst, src, typ, op); err != nil {
							t.Fatal(err)
						}
					})
					for i := range as {
						if got, want := getBits(dst, typ, i), reference(typ, op, as[i], bs[i]); got != want {
							t.Fatalf("%s: %d: %#x %v %#x = %#x, want %#x", path, i, as[i], op, bs[i], got, want)
						}
					}
				}
			})
		})
	}
}

// All pairs of corner values give the right result.
func TestCornersAreExact(t *testing.T) {
	for _, typ := range allTypes() {
		special := corners(typ)
		var as, bs []uint64
		for _, a := range special {
			for _, b := range special {
				as, bs = append(as, a), append(bs, b)
			}
		}
		for _, op := range allOps() {
			for _, path := range paths() {
				dst := pack(typ, as...)
				on(path, func() { mustInto(t, dst, pack(typ, bs...), typ, op) })
				for i := range as {
					if got, want := getBits(dst, typ, i), reference(typ, op, as[i], bs[i]); got != want {
						t.Errorf("%s: %v: %#x %v %#x = %#x, want %#x", path, typ, as[i], op, bs[i], got, want)
					}
				}
			}
		}
	}
}
