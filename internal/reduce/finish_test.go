package reduce

import (
	"bytes"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestFinishTruncatesTowardZero(t *testing.T) {
	signed := []int64{-100, -7, -1, 0, 1, 7, 100}
	for _, typ := range []Type{I8, I16, I32, I64} {
		for _, n := range []int{1, 2, 3, 7, 200, math.MaxInt32} {
			for _, path := range paths() {
				var bits []uint64
				for _, x := range signed {
					bits = append(bits, uint64(x))
				}
				buf := pack(typ, bits...)
				on(path, func() { mustFinish(t, buf, typ, n) })
				for i, x := range signed {
					if got, want := integerValue(typ, getBits(buf, typ, i)).Int64(), x/int64(n); got != want {
						t.Errorf("%s: %v: %d / %d = %d, want %d", path, typ, x, n, got, want)
					}
				}
			}
		}
	}
}

func mustFinish(t testing.TB, buf []byte, typ Type, n int) {
	t.Helper()
	if err := Finish(buf, typ, Avg, n); err != nil {
		t.Fatal(err)
	}
}

// An average is the quotient with one rounding to f32 (f64), and one more rounding to half precision.
func TestFinishDivides(t *testing.T) {
	for typ := F32; typ <= U64; typ++ {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				elements := rapid.SliceOfN(element(typ), 0, 40).Draw(t, "elements")
				n := rapid.OneOf(rapid.IntRange(1, 200), rapid.IntRange(1, 1<<24), rapid.IntRange(1, math.MaxInt)).Draw(t, "n")
				for _, path := range paths() {
					buf := pack(typ, elements...)
					on(path, func() {
						if err := Finish(buf, typ, Avg, n); err != nil {
							t.Fatal(err)
						}
					})
					for i, x := range elements {
						if got, want := getBits(buf, typ, i), quotient(typ, x, n); got != want {
							t.Fatalf("%s: %d: %#x / %d = %#x, want %#x", path, i, x, n, got, want)
						}
					}
				}
			})
		})
	}
}

func quotient(t Type, bits uint64, n int) uint64 {
	f, float := formats[t]
	if !float {
		x := integerValue(t, bits)
		return integerBits(t, x.Quo(x, big.NewInt(int64(n))))
	}
	x := f.value(bits)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return f.special(x)
	}
	// A quotient by n that is not representable is never so close to the midpoint of two results that
	// thousands of digits would hide its side.
	wide := formats[F64]
	if t != F64 {
		wide = formats[F32]
	}
	divisor := exact(wide.value(wide.round(new(big.Float).SetInt64(int64(n)), false)))
	q := new(big.Float).SetPrec(digits).Quo(exact(x), divisor)
	once := wide.value(wide.round(q, math.Signbit(x)))
	return f.round(exact(once), math.Signbit(x))
}

func TestFinishLeavesOthers(t *testing.T) {
	for _, typ := range allTypes() {
		for _, op := range opsOf(typ) {
			if op == Avg || typ == Bool {
				continue
			}
			buf := bytes.Repeat([]byte{0xff}, 96) // a NaN with its full payload
			if err := Finish(buf, typ, op, 3); err != nil || !bytes.Equal(buf, bytes.Repeat([]byte{0xff}, 96)) {
				t.Errorf("%v %v: %v, %x", typ, op, err, buf)
			}
			if Finishes(typ, op, 1) || Finishes(typ, op, 3) {
				t.Errorf("%v %v: Finishes reports a change", typ, op)
			}
		}
	}
}

// The truth value of a single operand becomes 0 or 1.
func TestFinishBool(t *testing.T) {
	for _, op := range opsOf(Bool) {
		for _, path := range paths() {
			buf := bytes.Repeat([]byte{0, 1, 2, 0x80, 0xff}, 9)
			on(path, func() {
				if err := Finish(buf, Bool, op, 1); err != nil || !Finishes(Bool, op, 1) {
					t.Errorf("%s: %v: %v", path, op, err)
				}
			})
			if !bytes.Equal(buf, bytes.Repeat([]byte{0, 1, 1, 1, 1}, 9)) {
				t.Errorf("%s: %v: %x", path, op, buf)
			}
		}
	}
}
