package reduce

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// All paths convert alike for all lengths and alignments, and write nothing else.
func TestConvertPathsAgree(t *testing.T) {
	for _, typ := range halves {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				at := drawShape(t)
				src := make([]byte, 2*at.n+100)[at.src:][:2*at.n]
				fill(r, src, typ)
				floats := make([]byte, 4*at.n)
				fill(r, floats, F32)
				results := map[string][]byte{}
				for _, path := range paths() {
					// out receives the results of both conversions, and memory that must stay zero.
					out := make([]byte, 10*at.n+100)
					wide, narrow := make([]float32, at.n+2), make([]float32, at.n)
					for i := range narrow {
						narrow[i] = math.Float32frombits(uint32(getBits(floats, F32, i)))
					}
					on(path, func() {
						Widen(wide[1:][:at.n], src, typ)
						Round(out[at.dst:][:2*at.n], narrow, typ)
					})
					for i, x := range wide {
						putBits(out[2*at.n+50:], F32, i, uint64(math.Float32bits(x)))
					}
					results[path] = out
				}
				agree(t, results)
			})
		})
	}
}

func TestConvertPieces(t *testing.T) {
	const step = 128 << 10 // elements per 256 KiB of halves
	r := rand.New(rand.NewPCG(5, 6))
	for _, typ := range halves {
		all := make([]byte, 8*step)
		fill(r, all, typ)
		for _, n := range []int{2*step - 1, 2 * step, 3*step + 7} {
			src := all[:2*n]
			var results [2][]byte
			var wides [2][]float32
			for i, path := range []string{"go", Path()} {
				results[i], wides[i] = make([]byte, 2*n), make([]float32, n)
				on(path, func() {
					Widen(wides[i], src, typ)
					Round(results[i], wides[i], typ)
				})
			}
			equalBits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
			same := slices.EqualFunc(wides[0], wides[1], equalBits)
			if !same || !slices.Equal(results[0], results[1]) {
				t.Errorf("%v: %d elements: the paths differ", typ, n)
			}
		}
	}
}

// The conversions of one element equal those of buffers.
func TestConvertOne(t *testing.T) {
	for _, c := range []struct {
		typ   Type
		widen func(uint16) float32
		round func(float32) uint16
	}{{F16, F16ToF32, F32ToF16}, {BF16, BF16ToF32, F32ToBF16}} {
		wide := make([]float32, 1<<16)
		Widen(wide, everyHalf(), c.typ)
		for h, want := range wide {
			if got := c.widen(uint16(h)); math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%v %#04x is %v, want %v", c.typ, h, got, want)
			}
			between := want * (1 + 0x1p-9)
			var rounded [2]byte
			Round(rounded[:], []float32{between}, c.typ)
			if got := pack(c.typ, uint64(c.round(between))); !bytes.Equal(got, rounded[:]) {
				t.Fatalf("%v: %v is rounded to %x, want %x", c.typ, between, got, rounded)
			}
		}
	}
}

func TestConvertPanics(t *testing.T) {
	wide, b, odd := make([]float32, 4), make([]byte, 8), 7
	for name, f := range map[string]func(){
		"a type that is not half": func() { Widen(wide, make([]byte, 16), F32) },
		"an unknown type":         func() { Widen(wide, b, 99) },
		"no type":                 func() { Round(b, wide, 0) },
		"too few bytes":           func() { Widen(wide, b[:6], F16) },
		"half an element":         func() { Round(b[:odd], wide[:odd/2], BF16) },
		"too many bytes":          func() { Round(b, wide[:3], BF16) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
