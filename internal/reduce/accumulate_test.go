package reduce

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Accumulate is an f32 operation on widened elements, and Round rounds its result.
func TestAccumulateIsExact(t *testing.T) {
	wide := formats[F32]
	for _, typ := range halves {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				op := rapid.SampledFrom(allOps()).Draw(t, "op")
				as := rapid.SliceOfN(element(F32), 0, 40).Draw(t, "acc")
				bs := rapid.SliceOfN(element(typ), len(as), len(as)).Draw(t, "src")
				for _, path := range paths() {
					acc, src, dst := make([]float32, len(as)), pack(typ, bs...), make([]byte, 2*len(as))
					for i, a := range as {
						acc[i] = math.Float32frombits(uint32(a))
					}
					on(path, func() {
						Accumulate(acc, src, typ, op)
						Round(dst, acc, typ)
					})
					for i := range as {
						widened := wide.bits(formats[typ].value(bs[i]))
						want := reference(F32, op, as[i], widened)
						if got := uint64(math.Float32bits(acc[i])); got != want {
							t.Fatalf("%s: %d: %#x %v %#x = %#x, want %#x", path, i, as[i], op, bs[i], got, want)
						}
						if got, want := getBits(dst, typ, i), formats[typ].bits(wide.value(want)); got != want {
							t.Fatalf("%s: %d: %v is rounded to %#x, want %#x", path, i, acc[i], got, want)
						}
					}
				}
			})
		})
	}
}

// All paths agree for all lengths and alignments.
func TestAccumulatePathsAgree(t *testing.T) {
	for _, typ := range halves {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				op := rapid.SampledFrom(allOps()).Draw(t, "op")
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				at := drawShape(t)
				src := make([]byte, 2*at.n+100)[at.src:][:2*at.n]
				more := make([]byte, 2*at.n+100)[at.dst:][:2*at.n]
				fill(r, src, typ)
				fill(r, more, typ)
				results := map[string][]byte{}
				for _, path := range paths() {
					// out receives the results of all stages, and memory that must stay zero.
					out := make([]byte, 10*at.n+100)
					acc := make([]float32, at.n+2)
					on(path, func() {
						Widen(acc[1:][:at.n], src, typ)
						Accumulate(acc[1:][:at.n], more, typ, op)
						FinishAcc(acc[1:][:at.n], op, 3)
						Round(out[at.dst:][:2*at.n], acc[1:][:at.n], typ)
					})
					for i, x := range acc {
						putBits(out[2*at.n+50:], F32, i, uint64(math.Float32bits(x)))
					}
					results[path] = out
				}
				agree(t, results)
			})
		})
	}
}

func TestAccumulatePieces(t *testing.T) {
	const step = 128 << 10 // elements per 256 KiB of halves
	r := rand.New(rand.NewPCG(5, 6))
	for _, typ := range halves {
		all := make([]byte, 8*step)
		fill(r, all, typ)
		for _, n := range []int{2*step - 1, 2 * step, 3*step + 7} {
			src := all[:2*n]
			var results [2][]byte
			var accs [2][]float32
			for i, path := range []string{"go", Path()} {
				results[i], accs[i] = make([]byte, 2*n), make([]float32, n)
				on(path, func() {
					Widen(accs[i], src, typ)
					Accumulate(accs[i], src, typ, Sum)
					Round(results[i], accs[i], typ)
				})
			}
			equalBits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
			same := slices.EqualFunc(accs[0], accs[1], equalBits)
			if !same || !slices.Equal(results[0], results[1]) {
				t.Errorf("%v: %d elements: the paths differ", typ, n)
			}
		}
	}
}

func TestAccumulatePanics(t *testing.T) {
	acc, b, odd := make([]float32, 4), make([]byte, 8), 7
	for name, f := range map[string]func(){
		"a type that is not half":   func() { Widen(acc, make([]byte, 16), F32) },
		"an unknown type":           func() { Accumulate(acc, b, 99, Sum) },
		"an unknown op":             func() { Accumulate(acc, b, F16, 99) },
		"too few bytes":             func() { Accumulate(acc, b[:6], F16, Sum) },
		"half an element":           func() { Round(b[:odd], acc[:odd/2], BF16) },
		"too many bytes":            func() { Round(b, acc[:3], BF16) },
		"finish of no operands":     func() { FinishAcc(acc, Avg, 0) },
		"finish with an unknown op": func() { FinishAcc(acc, 99, 1) },
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
