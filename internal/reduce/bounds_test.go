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
func (c cluster) exact(t Type, i, divide int) (magnitudes float64, whole *big.Float) {
	whole, all := exact(0), exact(0)
	for _, b := range c.ranks {
		x := exact(formats[t].value(getBits(b, t, i)))
		whole.Add(whole, x)
		all.Add(all, x.Abs(x))
	}
	whole.Quo(whole.SetPrec(200), exact(float64(divide))) // precise enough for a bound
	all.Quo(all.SetPrec(200), exact(float64(divide)))
	magnitudes, _ = all.Float64()
	return magnitudes, whole
}

func (c cluster) check(t *rapid.T, what string, dst []byte, typ Type, divide int, bound float64) {
	for i := range c.n {
		magnitudes, whole := c.exact(typ, i, divide)
		got := formats[typ].value(getBits(dst, typ, i))
		if off := distance(got, whole); off > bound*magnitudes {
			t.Fatalf("%s %d of P=%d: %g has an error of %g, at most %g is allowed",
				what, i, len(c.ranks), got, off, bound*magnitudes)
		}
	}
}

func distance(x float64, y *big.Float) float64 {
	d, _ := new(big.Float).Sub(exact(x), y).Float64()
	return math.Abs(d)
}
