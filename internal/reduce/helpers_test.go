package reduce

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// paths returns all implementations on this machine: assembly if available, Go in place, and Go on
// copies as on big-endian machines.
func paths() []string {
	if simd {
		return []string{"avx2", "go", "go-copies"}
	}
	return []string{"go", "go-copies"}
}

// on runs f on one of the paths.
func on(path string, f func()) {
	defer func(s, h bool) { simd, hostLittle = s, h }(simd, hostLittle)
	simd = simd && path == "avx2"
	hostLittle = hostLittle && path != "go-copies"
	f()
}

func allTypes() []Type {
	var all []Type
	for t := F32; t < numTypes; t++ {
		all = append(all, t)
	}
	return all
}

// opsOf returns the operations that a type has.
func opsOf(t Type) []Op {
	switch {
	case t == Bool:
		return []Op{And, Or, Xor}
	case t <= BF16:
		return []Op{Sum, Avg, Min, Max, Prod, PremulSum}
	}
	return []Op{Sum, Avg, Min, Max, Prod, And, Or, Xor}
}

// corners returns the values at which behaviour changes.
func corners(t Type) []uint64 {
	f, float := formats[t]
	if !float {
		top := uint64(1) << (8*t.Size() - 1)
		mask := top | (top - 1)
		return []uint64{0, 1, 2, 3, mask, mask - 1, top, top - 1, top + 1}
	}
	one := uint64(f.bias()) << f.fraction
	minNormal := uint64(1) << f.fraction
	values := []uint64{
		0, 1, 2, minNormal - 1, minNormal, minNormal + 1, one - 1, one, one + 1, one + minNormal,
		f.inf() - 1, f.inf() - 2, f.inf(), f.inf() + 1, f.nan(), f.nan() + 1, f.sign() - 1,
	}
	for _, v := range values {
		values = append(values, v|f.sign())
	}
	return values
}

// element draws a corner, arbitrary bits, or a value of common magnitude.
func element(t Type) *rapid.Generator[uint64] {
	mask := uint64(1)<<(8*t.Size()-1)<<1 - 1
	bits := rapid.Map(rapid.Uint64(), func(u uint64) uint64 { return u & mask })
	from := []*rapid.Generator[uint64]{rapid.SampledFrom(corners(t)), bits}
	if f, float := formats[t]; float {
		from = append(from, rapid.Map(bits, f.common))
	}
	return rapid.OneOf(from...)
}

// common keeps the sign and the fraction of arbitrary bits, with an exponent close to that of 1. Sums of
// such values round, whereas other sums only keep the larger operand.
func (f format) common(u uint64) uint64 {
	e := uint64(f.bias()-4) + u>>f.fraction&7
	return u&f.sign() | e<<f.fraction | u&(1<<f.fraction-1)
}

// fill is a fast variant of element for buffers.
func fill(r *rand.Rand, b []byte, t Type) {
	special := corners(t)
	f, float := formats[t]
	for i := range len(b) / t.Size() {
		bits := r.Uint64()
		switch choice := r.IntN(8); {
		case choice == 0:
			bits = special[r.IntN(len(special))]
		case choice < 5 && float:
			bits = f.common(bits)
		}
		putBits(b, t, i, bits)
	}
}

func mustInto(t testing.TB, dst, src []byte, typ Type, op Op) {
	t.Helper()
	if err := Into(dst, src, typ, op); err != nil {
		t.Fatal(err)
	}
}
