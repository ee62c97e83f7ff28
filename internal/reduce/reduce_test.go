package reduce

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNames(t *testing.T) {
	names := []string{"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"}
	sizes := []int{4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1}
	for i, name := range names {
		typ, err := ParseType(name)
		if err != nil || typ != Type(i+1) || typ.String() != name || typ.Size() != sizes[i] {
			t.Errorf("%s: %v of %d bytes, %v", name, typ, typ.Size(), err)
		}
	}
	for name, want := range map[string]Type{"float32": F32, "bfloat16": BF16, "int64": I64, "uint8": U8} {
		if typ, err := ParseType(name); err != nil || typ != want {
			t.Errorf("%s: %v, %v", name, typ, err)
		}
	}
	operators := []string{"sum", "avg", "min", "max", "prod", "and", "or", "xor", "premul-sum"}
	for i, name := range operators {
		op, err := ParseOp(name)
		if err != nil || op != Op(i+1) || op.String() != name {
			t.Errorf("%s: %v, %v", name, op, err)
		}
	}
	for name, want := range map[string]Op{
		"average": Avg, "product": Prod, "minimum": Min, "maximum": Max, "band": And, "bor": Or, "bxor": Xor,
		"premul_sum": PremulSum, "premultiplied-sum": PremulSum,
	} {
		if op, err := ParseOp(name); err != nil || op != want {
			t.Errorf("%s: %v, %v", name, op, err)
		}
	}
	if _, err := ParseType("f8"); !errors.Is(err, ErrType) || !containsAll(err, names) {
		t.Errorf("f8: %v", err)
	}
	if _, err := ParseOp("mean"); !errors.Is(err, ErrOp) || !containsAll(err, operators) {
		t.Errorf("mean: %v", err)
	}
	for _, name := range []string{"", "Type(0)", "Op(0)"} {
		_, errType := ParseType(name)
		_, errOp := ParseOp(name)
		if !errors.Is(errType, ErrType) || !errors.Is(errOp, ErrOp) {
			t.Errorf("%q: %v, %v", name, errType, errOp)
		}
	}
	if got := Type(99).String() + Op(99).String(); got != "Type(99)Op(99)" || Type(99).Size() != 0 {
		t.Errorf("the unknown type is %s with %d bytes", got, Type(99).Size())
	}
	if got := Type(0).String() + Op(0).String(); got != "Type(0)Op(0)" || Type(0).Size() != 0 {
		t.Errorf("the type that is not set is %s with %d bytes", got, Type(0).Size())
	}
}

// containsAll reports whether the message lists all names.
func containsAll(err error, names []string) bool {
	return strings.Contains(err.Error(), strings.Join(names, ", "))
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
		{"no type", Into(buf, buf, 0, Sum), ErrType},
		{"no op", Into(buf, buf, F32, 0), ErrOp},
		{"finish half an element", Finish(buf[:63], F64, Avg, 1), ErrSize},
		{"finish an unknown type", Finish(buf, 200, Avg, 1), ErrType},
		{"finish an unknown op", Finish(buf, F64, 200, 1), ErrOp},
		{"finish no type", Finish(buf, 0, Avg, 1), ErrType},
		{"finish no operand", Finish(buf, F64, Avg, 0), ErrRanks},
		{"finish less than none", Finish(buf, F64, Sum, -1), ErrRanks},
		{"finish the average of truth values", Finish(buf, Bool, Avg, 2), ErrCombine},
		{"scale integers", Scale(buf, buf, I32, 2), ErrCombine},
		{"scale truth values", Scale(buf, buf, Bool, 2), ErrCombine},
		{"scale lengths that differ", Scale(buf, buf[:60], F32, 2), ErrSize},
		{"scale half an element", Scale(buf[:63], buf[:63], F16, 2), ErrSize},
		{"scale no type", Scale(buf, buf, 0, 2), ErrType},
		{"nothing", Into(nil, nil, U64, Prod), nil},
		{"finish nothing", Finish(nil, F16, Avg, 3), nil},
		{"scale nothing", Scale(nil, nil, BF16, 3), nil},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
		}
	}
}

// An operator that a type does not have is an error that names both, and changes nothing.
func TestTypesHaveTheirOperators(t *testing.T) {
	for _, typ := range allTypes() {
		for op := Sum; op < numOps; op++ {
			dst, src := make([]byte, 64), bytes.Repeat([]byte{1}, 64)
			err := Into(dst, src, typ, op)
			if slices.Contains(opsOf(typ), op) {
				if err != nil {
					t.Errorf("%v of %v: %v", op, typ, err)
				}
				continue
			}
			if !errors.Is(err, ErrCombine) || !strings.Contains(err.Error(), fmt.Sprintf("%v of %v", op, typ)) {
				t.Errorf("%v of %v: %v", op, typ, err)
			}
			if !bytes.Equal(dst, make([]byte, 64)) {
				t.Errorf("%v of %v: dst changed", op, typ)
			}
		}
	}
}

// Any byte but 0 is true, in any position of a word or a vector; results are 0 or 1.
func TestBool(t *testing.T) {
	for a := range 256 {
		for _, b := range []int{0, 1, 2, 0x7f, 0x80, 0xff} {
			for op, want := range map[Op]bool{And: a != 0 && b != 0, Or: a != 0 || b != 0, Xor: (a != 0) != (b != 0)} {
				for _, path := range paths() {
					dst, src := bytes.Repeat([]byte{byte(a)}, 45), bytes.Repeat([]byte{byte(b)}, 45)
					on(path, func() { mustInto(t, dst, src, Bool, op) })
					var result byte
					if want {
						result = 1
					}
					if !bytes.Equal(dst, bytes.Repeat([]byte{result}, 45)) {
						t.Fatalf("%s: %#x %v %#x = %x, want %d", path, a, op, b, dst, result)
					}
				}
			}
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
		{PremulSum, inf, -inf, nan},
		{PremulSum, negZero, negZero, negZero},
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
				op := rapid.SampledFrom(opsOf(typ)).Draw(t, "op")
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
		for _, op := range opsOf(typ) {
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
