package units

import (
	"strconv"
	"strings"
)

// Rate is a number of bits per second, at least 1. It is a whole number, so that the text of a rate is exact.
type Rate int64

const rateValid = "a positive number followed by mbit or gbit, such as 200mbit, 1gbit, 2.5gbit, 100gbit"

var rateSuffixes = []struct {
	name     string
	decimals int // maximal number of digits after the point
}{{"gbit", 9}, {"mbit", 6}}

// ParseRate parses a rate.
func ParseRate(s string) (Rate, error) {
	bad := func(why string) (Rate, error) {
		return 0, &SyntaxError{Kind: "rate", Text: s, Why: why, Valid: rateValid}
	}
	for _, x := range rateSuffixes {
		number, ok := strings.CutSuffix(s, x.name)
		if !ok {
			continue
		}
		whole, fraction, ok := splitDecimal(number)
		if !ok {
			return bad("")
		}
		fraction = strings.TrimRight(fraction, "0")
		if len(fraction) > x.decimals {
			return bad("finer than 1 bit/s")
		}
		fraction += strings.Repeat("0", x.decimals-len(fraction))
		n, err := strconv.ParseInt(whole+fraction, 10, 64)
		if err != nil {
			return bad("above 2^63-1 bit/s")
		}
		if n == 0 {
			return bad("nothing would ever be sent")
		}
		return Rate(n), nil
	}
	return bad("")
}

// String writes the rate in gbit from 1 gbit on and in mbit below, exactly.
func (r Rate) String() string {
	x := rateSuffixes[0]
	if r < 1e9 {
		x = rateSuffixes[1]
	}
	digits := strconv.FormatInt(int64(r), 10)
	if missing := x.decimals + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - x.decimals
	number := strings.TrimRight(digits[:point]+"."+digits[point:], "0")
	return strings.TrimSuffix(number, ".") + x.name
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// splitDecimal splits "12.5" at its point, both sides of which must have digits. It refuses signs, exponents,
// "inf" and "nan".
func splitDecimal(s string) (whole, fraction string, ok bool) {
	whole, fraction, point := strings.Cut(s, ".")
	return whole, fraction, IsDigits(whole) && (!point || IsDigits(fraction))
}
