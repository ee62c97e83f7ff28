package reduce

import (
	"bytes"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// factors are the corners of a factor, and ordinary ones.
var factors = []float64{
	1, 0, -1, 0.5, 1. / 3, -2.75, 1e10, 0x1p-24, 1e-45, 3e38, 1e300, math.Inf(1), math.Inf(-1), math.NaN(),
	math.Copysign(0, -1),
}

// product returns the bits of an element times factor: one rounding to f32 (f64), and one more rounding to
// half precision.
func product(t Type, bits uint64, factor float64) uint64 {
	f, wide := formats[t], formats[F64]
	if t != F64 {
		wide = formats[F32]
		factor = float64(float32(factor))
	}
	x := f.value(bits)
	if math.IsNaN(x) || math.IsNaN(factor) || math.IsInf(x, 0) || math.IsInf(factor, 0) {
		return f.special(x * factor) // the product is not finite
	}
	negative := math.Signbit(x) != math.Signbit(factor)
	once := wide.value(wide.round(new(big.Float).Mul(exact(x), exact(factor)), negative))
	if math.IsInf(once, 0) {
		return f.special(once)
	}
	return f.round(exact(once), negative)
}

func floatTypes() []Type { return []Type{F32, F64, F16, BF16} }

// Scale equals exact arithmetic with the documented roundings, to the bit, for any length and alignment.
func TestScaleIsExact(t *testing.T) {
	for _, typ := range floatTypes() {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				factor := rapid.OneOf(rapid.SampledFrom(factors), rapid.Float64()).Draw(t, "factor")
				elements := rapid.SliceOfN(element(typ), 0, 40).Draw(t, "src")
				at := shape{dst: rapid.IntRange(0, 33).Draw(t, "dst offset"), src: rapid.IntRange(0, 33).Draw(t, "src offset")}
				src := append(make([]byte, at.src), pack(typ, elements...)...)[at.src:]
				kept := slices.Clone(src)
				for _, path := range paths() {
					dst := make([]byte, at.dst+len(src)+40)
					on(path, func() {
						if err := Scale(dst[at.dst:][:len(src)], src, typ, factor); err != nil {
							t.Fatal(err)
						}
					})
					for i, x := range elements {
						if got, want := getBits(dst[at.dst:], typ, i), product(typ, x, factor); got != want {
							t.Fatalf("%s: %d: %#x * %v = %#x, want %#x", path, i, x, factor, got, want)
						}
					}
					if !bytes.Equal(src, kept) || !bytes.Equal(dst[:at.dst], make([]byte, at.dst)) ||
						!bytes.Equal(dst[at.dst+len(src):], make([]byte, 40)) {
						t.Fatalf("%s: src changed, or Scale wrote outside of dst", path)
					}
				}
			})
		})
	}
}

// All corners times all factors give the right result.
func TestScaleCorners(t *testing.T) {
	for _, typ := range floatTypes() {
		elements := corners(typ)
		for _, factor := range factors {
			for _, path := range paths() {
				buf := pack(typ, elements...)
				on(path, func() {
					if err := Scale(buf, buf, typ, factor); err != nil {
						t.Fatal(err)
					}
				})
				for i, x := range elements {
					if got, want := getBits(buf, typ, i), product(typ, x, factor); got != want {
						t.Errorf("%s: %v: %#x * %v = %#x, want %#x", path, typ, x, factor, got, want)
					}
				}
			}
		}
	}
}

// dst and src may be the same memory, and all paths agree on long buffers.
func TestScaleItself(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, typ := range floatTypes() {
		for _, n := range []int{0, 1, 7, 127, 128, 129, 300, 5000} {
			src := make([]byte, n*typ.Size())
			fill(r, src, typ)
			want := make([]byte, len(src))
			on("go", func() { _ = Scale(want, src, typ, 0.3) })
			for _, path := range paths() {
				same := slices.Clone(src)
				on(path, func() { _ = Scale(same, same, typ, 0.3) })
				if !bytes.Equal(same, want) {
					t.Errorf("%s: %v of %d: scaling in place differs", path, typ, n)
				}
			}
		}
	}
}
