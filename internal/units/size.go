package units

import (
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, never negative.
type Size int64

const sizeValid = "a whole number of bytes with an optional binary suffix, such as 4096, 4K or 4KiB, 8M, 1G"

// sizeSuffixes goes from the largest down, so that String finds the shortest form. An "iB" may follow each.
var sizeSuffixes = []struct {
	name  string
	shift uint
}{{"G", 30}, {"M", 20}, {"K", 10}}

// ParseSize parses a size.
func ParseSize(s string) (Size, error) {
	digits, shift := s, uint(0)
	for _, x := range sizeSuffixes {
		if d, ok := strings.CutSuffix(strings.TrimSuffix(s, "iB"), x.name); ok {
			digits, shift = d, x.shift
			break
		}
	}
	if !IsDigits(digits) {
		return 0, &SyntaxError{Kind: "size", Text: s, Valid: sizeValid}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64>>shift {
		return 0, &SyntaxError{Kind: "size", Text: s, Why: "above 2^63-1 bytes", Valid: sizeValid}
	}
	return Size(n << shift), nil
}

// String writes the size with the largest suffix that loses nothing.
func (n Size) String() string {
	for _, x := range sizeSuffixes {
		if n != 0 && n%(1<<x.shift) == 0 {
			return strconv.FormatInt(int64(n>>x.shift), 10) + x.name
		}
	}
	return strconv.FormatInt(int64(n), 10)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Size) UnmarshalText(text []byte) (err error) {
	*n, err = ParseSize(string(text))
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (n Size) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// IsDigits reports whether s is one or more ASCII digits. Package strconv alone would also accept a sign.
func IsDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
