package bench

import (
	"math"

	"github.com/allcast/allcast"
)

// wrong counts the bytes of wrong elements in got, whose first element has number first: elements that differ from the
// reduction of all ranks' contributions to this call.
func (e elements) wrong(got []byte, call, first uint64) (wrong int64) {
	const batch = 1024
	size := e.t.Size()
	raw := make([]byte, batch*size)
	for len(got) > 0 {
		n := min(batch, len(got)/size)
		part := func(rank int) []byte {
			e.fill(raw[:n*size], patternSeed(call, e.base+rank, 0), first)
			return raw[:n*size]
		}
		if e.unit() > 0 {
			wrong += int64(size) * e.wrongFloats(got[:n*size], part)
		} else {
			wrong += int64(size) * e.wrongInts(got[:n*size], part)
		}
		got, first = got[n*size:], first+uint64(n)
	}
	return wrong
}

// wrongInts compares with the exact result. Wrapping sums and products, and bitwise operations, do not depend on order
// or width.
func (e elements) wrongInts(got []byte, part func(rank int) []byte) (wrong int64) {
	n := len(got) / e.t.Size()
	want := make([]uint64, n)
	for r := range e.ranks {
		b := part(r)
		for i := range want {
			v := e.int(b, i)
			if r > 0 {
				v = e.combine(want[i], v)
			}
			want[i] = v
		}
	}
	for i, w := range want {
		w = e.wrap(w)
		if e.op == allcast.Average {
			if e.signed() {
				w = uint64(int64(w) / int64(e.ranks))
			} else {
				w /= uint64(e.ranks)
			}
		}
		if e.int(got, i) != e.wrap(w) {
			wrong++
		}
	}
	return wrong
}

func (e elements) combine(a, b uint64) uint64 {
	less := a < b
	if e.signed() {
		less = int64(a) < int64(b)
	}
	switch e.op {
	case allcast.Product:
		return a * b
	case allcast.Min:
		if less {
			return a
		}
		return b
	case allcast.Max:
		if less {
			return b
		}
		return a
	case allcast.And:
		return a & b
	case allcast.Or:
		return a | b
	case allcast.Xor:
		return a ^ b
	}
	return a + b
}

// wrongFloats compares with a result computed in float64. Sums must be exact where that is possible. Other sums and
// products may differ by the error bound for P numbers in any order: to first order, (P-1)u times the sum of their
// magnitudes, or times the product (Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2). tolerance
// doubles the bound to cover higher orders and the error of the reference itself.
func (e elements) wrongFloats(got []byte, part func(rank int) []byte) (wrong int64) {
	n := len(got) / e.t.Size()
	want, size, v := make([]float64, n), make([]float64, n), make([]float64, n)
	for r := range e.ranks {
		e.floats(v, part(r))
		for i, x := range v {
			if e.op == allcast.PremultipliedSum {
				x *= factor(r)
			}
			if r == 0 {
				want[i], size[i] = x, math.Abs(x)
				continue
			}
			switch e.op {
			case allcast.Min:
				want[i] = min(want[i], x)
			case allcast.Max:
				want[i] = max(want[i], x)
			case allcast.Product:
				want[i] *= x
				size[i] = math.Abs(want[i])
			default:
				want[i] += x
				size[i] += math.Abs(x)
			}
		}
	}
	e.floats(v, got)
	for i, w := range want {
		if e.op == allcast.Average {
			w /= float64(e.ranks)
			size[i] /= float64(e.ranks)
		}
		if !(math.Abs(v[i]-w) <= e.tolerance(w, size[i])) { // written so that NaN is wrong
			wrong++
		}
	}
	return wrong
}

func (e elements) tolerance(want, size float64) float64 {
	if e.op == allcast.Min || e.op == allcast.Max || e.ranks == 1 {
		return 0
	}
	var t float64
	if e.op == allcast.Product || e.largest() < 1 {
		t = 2 * float64(e.ranks-1) * e.unit() * size
	}
	if e.op == allcast.Average {
		t += 2 * e.unit() * math.Abs(want) // the division
	}
	return t
}
