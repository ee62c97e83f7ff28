package reduce

import (
	"encoding/binary"
	"math"
	"math/big"
)

// The reference computes every operation exactly with big numbers, and rounds once. It shares no code
// with the package. Elements are bits in a uint64.

func getBits(b []byte, t Type, i int) uint64 {
	b = b[i*t.Size():]
	switch t.Size() {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func putBits(b []byte, t Type, i int, bits uint64) {
	var le [8]byte
	binary.LittleEndian.PutUint64(le[:], bits)
	copy(b[i*t.Size():][:t.Size()], le[:])
}

func pack(t Type, elements ...uint64) []byte {
	b := make([]byte, len(elements)*t.Size())
	for i, bits := range elements {
		putBits(b, t, i, bits)
	}
	return b
}

// format is a binary floating-point format of the IEEE 754 kind.
type format struct {
	fraction, exponent int // widths in bits
}

var formats = map[Type]format{F32: {23, 8}, F64: {52, 11}, F16: {10, 5}, BF16: {7, 8}}

func (f format) bias() int    { return 1<<(f.exponent-1) - 1 }
func (f format) inf() uint64  { return (1<<f.exponent - 1) << f.fraction }
func (f format) nan() uint64  { return f.inf() | 1<<(f.fraction-1) }
func (f format) sign() uint64 { return 1 << (f.fraction + f.exponent) }

// value returns the exact value; every format fits a float64. It returns some NaN for any NaN.
func (f format) value(bits uint64) float64 {
	m, e := bits&(1<<f.fraction-1), int(bits>>f.fraction)&(1<<f.exponent-1)
	var x float64
	switch {
	case e == 1<<f.exponent-1 && m != 0:
		return math.NaN()
	case e == 1<<f.exponent-1:
		x = math.Inf(1)
	case e == 0:
		x = math.Ldexp(float64(m), 1-f.bias()-f.fraction)
	default:
		x = math.Ldexp(float64(m|1<<f.fraction), e-f.bias()-f.fraction)
	}
	if bits&f.sign() != 0 {
		return math.Copysign(x, -1)
	}
	return x
}

// round rounds x to nearest, ties to even. negative is the sign if x is zero.
func (f format) round(x *big.Float, negative bool) uint64 {
	var sign uint64
	if x.Signbit() || x.Sign() == 0 && negative {
		sign = f.sign()
	}
	if x.Sign() == 0 {
		return sign
	}
	x = new(big.Float).SetPrec(x.MinPrec() + 1).Abs(x) // a lower precision is faster
	// x is between 2^(e-1) and 2^e. Count it in units of the last place there.
	e := x.MantExp(nil)
	unit := max(e-1, 1-f.bias()) - f.fraction
	x.SetMantExp(x, -unit)
	units, _ := x.Int(nil)
	rest := new(big.Float).Sub(x, new(big.Float).SetInt(units))
	if half := rest.Cmp(big.NewFloat(0.5)); half > 0 || half == 0 && units.Bit(0) == 1 {
		units.Add(units, big.NewInt(1))
	}
	// The bits are the units plus the exponent, counted from the smallest one. This is also right
	// for denormals, which have no exponent yet, and for a carry into the next exponent.
	step := unit - (1 - f.bias() - f.fraction)
	bits := units.Uint64() + uint64(step)<<f.fraction
	return sign | min(bits, f.inf())
}

// digits suffices to add and multiply all formats without rounding: sums of doubles range from 2^-1074
// to 2^1024, and slightly beyond.
const digits = 2200

func exact(x float64) *big.Float {
	return new(big.Float).SetPrec(digits).SetFloat64(x)
}

// reference returns a op b.
func reference(t Type, op Op, a, b uint64) uint64 {
	f, float := formats[t]
	if !float {
		return referenceInt(t, op, a, b)
	}
	x, y := f.value(a), f.value(b)
	if math.IsNaN(x) || math.IsNaN(y) {
		return f.nan()
	}
	switch op {
	case Min, Max:
		// Compare as integers, with the complement for negative values: -0 is less than +0.
		less := x < y || x == y && a&f.sign() > b&f.sign()
		if less == (op == Min) {
			return a
		}
		return b
	case Prod:
		if math.IsInf(x, 0) || math.IsInf(y, 0) {
			return f.special(x * y)
		}
		return f.round(new(big.Float).Mul(exact(x), exact(y)), math.Signbit(x) != math.Signbit(y))
	}
	if math.IsInf(x, 0) || math.IsInf(y, 0) {
		return f.special(x + y)
	}
	return f.round(new(big.Float).Add(exact(x), exact(y)), math.Signbit(x) && math.Signbit(y))
}

// bits is round for any float64 except denormals. Scaling by powers of two and math.RoundToEven are
// exact, and much faster than big numbers.
func (f format) bits(x float64) uint64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return f.special(x)
	}
	var sign uint64
	if math.Signbit(x) {
		sign, x = f.sign(), -x
	}
	if x == 0 {
		return sign
	}
	_, e := math.Frexp(x)
	smallest := 1 - f.bias() - f.fraction
	unit := max(e-1-f.fraction, smallest)
	units := uint64(math.RoundToEven(math.Ldexp(x, -unit)))
	return sign | min(units+uint64(unit-smallest)<<f.fraction, f.inf())
}

// special returns the bits of an infinity or a NaN.
func (f format) special(x float64) uint64 {
	switch {
	case math.IsInf(x, 1):
		return f.inf()
	case math.IsInf(x, -1):
		return f.sign() | f.inf()
	}
	return f.nan()
}

// integerValue returns the value of an integer type's bits.
func integerValue(t Type, bits uint64) *big.Int {
	x := new(big.Int).SetUint64(bits)
	if width := uint(8 * t.Size()); t <= I64 && bits>>(width-1) == 1 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), width))
	}
	return x
}

// integerBits wraps around.
func integerBits(t Type, x *big.Int) uint64 {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*t.Size()))
	return new(big.Int).Mod(x, modulus).Uint64() // Mod is never negative
}

func referenceInt(t Type, op Op, a, b uint64) uint64 {
	if t == Bool {
		a, b = min(a, 1), min(b, 1)
	}
	x, y := integerValue(t, a), integerValue(t, b)
	switch op {
	case And:
		return a & b
	case Or:
		return a | b
	case Xor:
		return a ^ b
	case Min, Max:
		if x.Cmp(y) < 0 == (op == Min) {
			return a
		}
		return b
	case Prod:
		return integerBits(t, x.Mul(x, y))
	}
	return integerBits(t, x.Add(x, y))
}
