package reduce

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPath logs the paths that the other tests compare.
func TestPath(t *testing.T) {
	t.Logf("this machine works on %q; the tests compare %q", Path(), paths())
	on("go", func() {
		if Path() != "go" {
			t.Errorf("switched off, the path is still %q", Path())
		}
	})
}

// shape is the layout of buffers: the number of elements, and the distance from an aligned address.
type shape struct{ n, dst, src int }

func drawShape(t *rapid.T) shape {
	return shape{
		n:   rapid.OneOf(rapid.IntRange(0, 140), rapid.IntRange(0, 3000)).Draw(t, "n"),
		dst: rapid.IntRange(0, 33).Draw(t, "dst offset"),
		src: rapid.IntRange(0, 33).Draw(t, "src offset"),
	}
}

// Every path gives the same bytes, writes nothing outside dst, and leaves src unchanged.
func TestIntoPathsAgree(t *testing.T) {
	for _, typ := range allTypes() {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				op := rapid.SampledFrom(opsOf(typ)).Draw(t, "op")
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				at := drawShape(t)
				size := at.n * typ.Size()
				before, src := make([]byte, size+100), make([]byte, size+100)
				fill(r, before[at.dst:][:size], typ)
				fill(r, src[at.src:][:size], typ)
				kept := slices.Clone(src)

				results := map[string][]byte{}
				for _, path := range paths() {
					dst := slices.Clone(before)
					on(path, func() {
						if err := Into(dst[at.dst:][:size], src[at.src:][:size], typ, op); err != nil {
							t.Fatal(err)
						}
					})
					results[path] = dst
					if !bytes.Equal(src, kept) {
						t.Fatalf("%s: src changed", path)
					}
					if !bytes.Equal(dst[:at.dst], before[:at.dst]) || !bytes.Equal(dst[at.dst+size:], before[at.dst+size:]) {
						t.Fatalf("%s: wrote outside of dst", path)
					}
				}
				agree(t, results)
			})
		})
	}
}

func agree(t *rapid.T, results map[string][]byte) {
	for path, got := range results {
		if want := results["go"]; !bytes.Equal(got, want) {
			i := 0
			for got[i] == want[i] {
				i++
			}
			t.Fatalf("byte %d of %d: %s gives %#x, go gives %#x", i, len(got), path, got[i], want[i])
		}
	}
}

// dst and src may be the same memory.
func TestIntoItself(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range allTypes() {
		for _, op := range opsOf(typ) {
			for _, n := range []int{0, 1, 7, 33, 300} {
				src := make([]byte, n*typ.Size())
				fill(r, src, typ)
				for _, path := range paths() {
					apart, same := slices.Clone(src), slices.Clone(src)
					on(path, func() {
						mustInto(t, apart, src, typ, op)
						mustInto(t, same, same, typ, op)
					})
					if !bytes.Equal(apart, same) {
						t.Errorf("%s: %v %v of %d: into itself differs", path, typ, op, n)
					}
				}
			}
		}
	}
}

// The assembly runs in pieces: it processes each byte exactly once.
func TestIntoPieces(t *testing.T) {
	const step = 256 << 10
	r := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []Type{F32, F16, U8, Bool} {
		op := opsOf(typ)[0]
		before, src := make([]byte, 4*step), make([]byte, 4*step)
		fill(r, before, typ)
		fill(r, src, typ)
		for _, size := range []int{step + 8, 2*step - 8, 2 * step, 2*step + 8, 3*step + 24} {
			fast, plain := slices.Clone(before[:size]), slices.Clone(before[:size])
			mustInto(t, fast, src[:size], typ, op)
			on("go", func() { mustInto(t, plain, src[:size], typ, op) })
			if !bytes.Equal(fast, plain) {
				t.Errorf("%v: %d bytes: the paths differ", typ, size)
			}
			if typ == Bool {
				continue // has no average
			}
			if typ != U8 {
				_ = Scale(fast, fast, typ, 0.3)
				on("go", func() { _ = Scale(plain, plain, typ, 0.3) })
				if !bytes.Equal(fast, plain) {
					t.Errorf("%v: %d bytes: the paths scale differently", typ, size)
				}
			}
			mustFinish(t, fast, typ, 3)
			on("go", func() { mustFinish(t, plain, typ, 3) })
			if !bytes.Equal(fast, plain) {
				t.Errorf("%v: %d bytes: the averages differ", typ, size)
			}
		}
	}
}

// The data path does not allocate.
func TestNoAllocations(t *testing.T) {
	dst, src, wide := make([]byte, 4096), make([]byte, 4096), make([]float32, 2048)
	for _, path := range paths() {
		for _, typ := range allTypes() {
			for _, op := range opsOf(typ) {
				on(path, func() {
					if n := testing.AllocsPerRun(10, func() {
						_ = Into(dst, src, typ, op)
						_ = Into(dst[1:65], src[3:67], typ, op) // not aligned
						_ = Into(dst[:8], src[:8], typ, op)
						_ = Finish(dst, typ, op, 2)
					}); n != 0 {
						t.Errorf("%s: %v %v: %v allocations", path, typ, op, n)
					}
				})
			}
		}
		on(path, func() {
			if n := testing.AllocsPerRun(10, func() {
				Widen(wide, src, F16)
				Round(dst, wide, BF16)
				_ = Scale(dst, src, F32, 2)
				_ = Scale(dst[1:65], src[3:67], F64, 2)
				_ = Scale(dst, src, F16, 2)
			}); n != 0 {
				t.Errorf("%s: %v allocations in conversions and Scale", path, n)
			}
		})
	}
}
