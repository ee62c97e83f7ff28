package reduce

import (
	"encoding/binary"
	"math"
	"os"
	"testing"
)

var halves = []Type{F16, BF16}

// Every value of both types converts to f32 exactly, including its sign; all NaNs become one.
func TestWidenAll(t *testing.T) {
	for _, typ := range halves {
		f := formats[typ]
		src := everyHalf()
		for _, path := range paths() {
			acc := make([]float32, 1<<16)
			on(path, func() { Widen(acc, src, typ) })
			for h, got := range acc {
				want := float32(f.value(uint64(h))) // exact
				bits := math.Float32bits(want)
				if want != want {
					bits = 0x7fc00000
				}
				if math.Float32bits(got) != bits {
					t.Fatalf("%s: %v %#04x is %v (%#x), want %v (%#x)", path, typ, h, got, math.Float32bits(got), want, bits)
				}
			}
		}
	}
}

func everyHalf() []byte {
	b := make([]byte, 2<<16)
	for h := range 1 << 16 {
		binary.LittleEndian.PutUint16(b[2*h:], uint16(h))
	}
	return b
}

// Every value of both types survives the conversion to f32 and back.
func TestRoundIsInverse(t *testing.T) {
	for _, typ := range halves {
		f := formats[typ]
		for _, path := range paths() {
			acc, got := make([]float32, 1<<16), make([]byte, 2<<16)
			on(path, func() {
				Widen(acc, everyHalf(), typ)
				Round(got, acc, typ)
			})
			for h := range uint64(1 << 16) {
				want := h
				if math.IsNaN(f.value(h)) {
					want = f.nan()
				}
				if bits := getBits(got, typ, int(h)); bits != want {
					t.Fatalf("%s: %v %#04x comes back as %#04x, want %#04x", path, typ, h, bits, want)
				}
			}
		}
	}
}

// Rounding is correct around every value, and around the midpoint between it and the next one.
func TestRoundBorders(t *testing.T) {
	for _, typ := range halves {
		var values []float32
		for h := range uint64(1 << 15) {
			here, next := formats[typ].value(h), formats[typ].value(h+1)
			if math.IsNaN(here) {
				continue
			}
			if math.IsInf(next, 1) { // the value that would follow the largest
				next = 2*here - formats[typ].value(h-1)
			}
			for _, x := range []float32{float32(here), float32((here + next) / 2)} {
				for _, u := range []uint32{math.Float32bits(x) - 1, math.Float32bits(x), math.Float32bits(x) + 1} {
					values = append(values, math.Float32frombits(u), -math.Float32frombits(u))
				}
			}
		}
		values = append(values, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32)
		values = append(values, 65504, 65519.996, 65520, 65536)
		checkRound(t, typ, values)
	}
}

func checkRound(t *testing.T, typ Type, values []float32) {
	t.Helper()
	want := make([]byte, 2*len(values))
	for i, x := range values {
		putBits(want, typ, i, formats[typ].bits(float64(x)))
	}
	for _, path := range paths() {
		got := make([]byte, len(want))
		on(path, func() { Round(got, values, typ) })
		for i, x := range values {
			if bits, want := getBits(got, typ, i), getBits(want, typ, i); bits != want {
				t.Fatalf("%s: %v (%#x) to %v is %#04x, want %#04x", path, x, math.Float32bits(x), typ, bits, want)
			}
		}
	}
}

// One value of every 2^16 covers all exponents and the upper bits of the fraction.
func TestRoundSample(t *testing.T) {
	for _, typ := range halves {
		var values []float32
		for u := uint64(0); u < 1<<32; u += 1<<16 - 3 {
			values = append(values, math.Float32frombits(uint32(u)))
		}
		checkRound(t, typ, values)
	}
}

// All paths agree for all 2^32 values of f32.
func TestRoundEveryF32(t *testing.T) {
	if os.Getenv("ALLCAST_EXHAUSTIVE") == "" {
		t.Skip("compares 2^32 values, which takes minutes; ALLCAST_EXHAUSTIVE=1 runs it")
	}
	const step = 1 << 20
	values, first, other := make([]float32, step), make([]byte, 2*step), make([]byte, 2*step)
	for base := uint64(0); base < 1<<32; base += step {
		for i := range values {
			values[i] = math.Float32frombits(uint32(base) + uint32(i))
		}
		for _, typ := range halves {
			on("go", func() { Round(first, values, typ) })
			on("avx2", func() { Round(other, values, typ) })
			if string(first) != string(other) {
				t.Fatalf("%v: the paths differ from %#x on", typ, base)
			}
		}
	}
}
