package reduce

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// A sequential reduction over P ranks stays within the bound of recursive summation (Higham, Accuracy
// and Stability of Numerical Algorithms, 4.2): |error| <= gamma * sum of |x|, gamma = k*u/(1 - k*u),
// over k = P-1 roundings of unit u.
func TestSumErrorBound(t *testing.T) {
	for _, typ := range []Type{F32, F64, F16, BF16} {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := drawCluster(t, typ)
				bound := c.gamma(typ)
				dst := append([]byte(nil), c.ranks[0]...)
				for _, src := range c.ranks[1:] {
					if err := Into(dst, src, typ, Avg); err != nil {
						t.Fatal(err)
					}
				}
				c.check(t, "sum", dst, typ, 1, bound)
				if err := Finish(dst, typ, Avg, len(c.ranks)); err != nil {
					t.Fatal(err)
				}
				c.check(t, "average", dst, typ, len(c.ranks), bound+2*unit(typ))
			})
		})
	}
}

// With an accumulator, the bound is that of f32 plus one rounding.
func TestAccumulateErrorBound(t *testing.T) {
	for _, typ := range halves {
		t.Run(typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := drawCluster(t, typ)
				acc, dst := make([]float32, c.n), make([]byte, 2*c.n)
				Widen(acc, c.ranks[0], typ)
				for _, src := range c.ranks[1:] {
					Accumulate(acc, src, typ, Avg)
				}
				Round(dst, acc, typ)
				// The one rounding is relative to the result, not to the sum of |x|.
				c.checkTight(t, "sum", dst, typ, 1, c.gamma(F32))
				FinishAcc(acc, Avg, len(c.ranks))
				Round(dst, acc, typ)
				c.checkTight(t, "average", dst, typ, len(c.ranks), c.gamma(F32)+2*unit(F32))
			})
		})
	}
}

// cluster holds the buffers of P ranks, with numbers whose sums do not overflow.
type cluster struct {
	n     int
	ranks [][]byte
}

func drawCluster(t *rapid.T, typ Type) cluster {
	c := cluster{n: rapid.IntRange(1, 70).Draw(t, "n")}
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	f := formats[typ]
	for range rapid.IntRange(1, 40).Draw(t, "P") {
		b := make([]byte, c.n*typ.Size())
		for i := range c.n {
			putBits(b, typ, i, f.common(r.Uint64()))
		}
		c.ranks = append(c.ranks, b)
	}
	return c
}

// unit returns the relative error of one rounding.
func unit(t Type) float64 { return math.Ldexp(1, -formats[t].fraction-1) }

func (c cluster) gamma(t Type) float64 {
	k := float64(len(c.ranks)-1) * unit(t)
	return k / (1 - k)
}

// exact returns the quotient of the sum of element i and divide, and that of the magnitudes.
func (c cluster) exact(t Type, i, divide int) (sum, magnitudes float64, whole *big.Float) {
	whole, all := exact(0), exact(0)
	for _, b := range c.ranks {
		x := exact(formats[t].value(getBits(b, t, i)))
		whole.Add(whole, x)
		all.Add(all, x.Abs(x))
	}
	whole.Quo(whole.SetPrec(200), exact(float64(divide))) // precise enough for a bound
	all.Quo(all.SetPrec(200), exact(float64(divide)))
	sum, _ = whole.Float64()
	magnitudes, _ = all.Float64()
	return sum, magnitudes, whole
}

func (c cluster) check(t *rapid.T, what string, dst []byte, typ Type, divide int, bound float64) {
	for i := range c.n {
		_, magnitudes, whole := c.exact(typ, i, divide)
		got := formats[typ].value(getBits(dst, typ, i))
		if off := distance(got, whole); off > bound*magnitudes {
			t.Fatalf("%s %d of P=%d: %g has an error of %g, at most %g is allowed",
				what, i, len(c.ranks), got, off, bound*magnitudes)
		}
	}
}

func (c cluster) checkTight(t *rapid.T, what string, dst []byte, typ Type, divide int, bound float64) {
	smallest := formats[typ].value(1) // near zero, half of it is the rounding error
	for i := range c.n {
		sum, magnitudes, whole := c.exact(typ, i, divide)
		got := formats[typ].value(getBits(dst, typ, i))
		allowed := bound*magnitudes*(1+unit(typ)) + unit(typ)*math.Abs(sum) + smallest/2
		if off := distance(got, whole); off > allowed {
			t.Fatalf("%s %d of P=%d: %g has an error of %g, at most %g is allowed",
				what, i, len(c.ranks), got, off, allowed)
		}
	}
}

func distance(x float64, y *big.Float) float64 {
	d, _ := new(big.Float).Sub(exact(x), y).Float64()
	return math.Abs(d)
}

// The accumulator is needed because ones are lost once the sum is 2^11 times larger.
func TestAccumulatorKeepsSmallAddends(t *testing.T) {
	const ranks = 3000
	ones := pack(F16, 0x3c00)
	dst, acc := pack(F16, 0x3c00), make([]float32, 1)
	Widen(acc, ones, F16)
	for range ranks - 1 {
		mustInto(t, dst, ones, F16, Sum)
		Accumulate(acc, ones, F16, Sum)
	}
	if got := formats[F16].value(getBits(dst, F16, 0)); got != 2048 {
		t.Errorf("with a rounding per step, %d ones sum to %v, want 2048, where half precision stops", ranks, got)
	}
	Round(dst, acc, F16)
	if got := formats[F16].value(getBits(dst, F16, 0)); got != ranks {
		t.Errorf("accumulated in f32, %d ones sum to %v", ranks, got)
	}
}
