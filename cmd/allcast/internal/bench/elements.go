package bench

import (
	"encoding/binary"
	"math"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/reduce"
)

// elements describes a reduction: element type, operator and ranks.
type elements struct {
	t     allcast.DataType
	op    allcast.ReduceOp
	ranks int
	base  int // world rank of rank 0
}

// factor is the factor of a rank in a PremultipliedSum. Small whole numbers keep products exact.
func factor(rank int) float64 { return float64(1 + rank%maxFactor) }

const maxFactor = 3

// fill writes a rank's elements, starting with element number first. Integers have any value and wrap around. Floats
// are whole numbers so small that their sum is exact in any order: a missing contribution then shows even in bf16.
// Factors are close to 1, so that no product leaves the range of f16.
func (e elements) fill(dst []byte, seed, first uint64) {
	n := len(dst) / e.t.Size()
	switch e.t {
	case allcast.Float32:
		for i := range n {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(float32(e.float(seed, first+uint64(i)))))
		}
	case allcast.Float64:
		for i := range n {
			binary.LittleEndian.PutUint64(dst[8*i:], math.Float64bits(e.float(seed, first+uint64(i))))
		}
	case allcast.Float16, allcast.BFloat16:
		wide := make([]float32, n)
		for i := range wide {
			wide[i] = float32(e.float(seed, first+uint64(i)))
		}
		reduce.Round(dst, wide, reduce.Type(e.t))
	default:
		for i := range n {
			v := patternWord(seed, first+uint64(i))
			if e.op == allcast.Product {
				v |= 1 // many even factors would make every product 0
			}
			if e.t == allcast.Bool {
				v &= 1
			}
			e.putInt(dst, i, v)
		}
	}
}

func (e elements) float(seed, i uint64) float64 {
	f := float64(int64(patternWord(seed, i))>>11) * 0x1p-52
	switch e.op {
	case allcast.Product:
		return 1 + f*min(1./8, 8/float64(e.ranks))
	case allcast.Min, allcast.Max:
		return f
	}
	return math.Round(f * max(1, e.largest()))
}

// largest is the magnitude up to which floats can be summed exactly. Below 1, no exact sum is possible with this
// number of ranks.
func (e elements) largest() float64 {
	largest := 1 / e.unit() / float64(e.ranks)
	if e.op == allcast.PremultipliedSum {
		largest /= maxFactor
	}
	return math.Floor(largest)
}

// floats reads elements of a float type.
func (e elements) floats(dst []float64, src []byte) {
	switch e.t {
	case allcast.Float32:
		for i := range dst {
			dst[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
		}
	case allcast.Float64:
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:]))
		}
	default:
		wide := make([]float32, len(dst))
		reduce.Widen(wide, src, reduce.Type(e.t))
		for i, f := range wide {
			dst[i] = float64(f)
		}
	}
}

// unit is half a unit in the last place of 1, 0 for integers.
func (e elements) unit() float64 {
	switch e.t {
	case allcast.Float32:
		return 0x1p-24
	case allcast.Float64:
		return 0x1p-53
	case allcast.Float16:
		return 0x1p-11
	case allcast.BFloat16:
		return 0x1p-8
	}
	return 0
}

func (e elements) signed() bool { return e.t >= allcast.Int8 && e.t <= allcast.Int64 }

func (e elements) putInt(b []byte, i int, v uint64) {
	switch e.t.Size() {
	case 1:
		b[i] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b[2*i:], uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

// int reads an integer and sign-extends it if its type is signed.
func (e elements) int(b []byte, i int) uint64 {
	var v uint64
	switch e.t.Size() {
	case 1:
		v = uint64(b[i])
	case 2:
		v = uint64(binary.LittleEndian.Uint16(b[2*i:]))
	case 4:
		v = uint64(binary.LittleEndian.Uint32(b[4*i:]))
	default:
		v = binary.LittleEndian.Uint64(b[8*i:])
	}
	return e.wrap(v)
}

// wrap truncates v to the width of the type.
func (e elements) wrap(v uint64) uint64 {
	unused := 64 - 8*e.t.Size()
	if e.signed() {
		return uint64(int64(v<<unused) >> unused)
	}
	return v << unused >> unused
}
