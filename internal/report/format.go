package report

import (
	"fmt"
	"strconv"
)

// volume formats bytes for users, with three significant digits.
func volume(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if v /= 1000; v < 999.5 {
			return digits(v) + " " + unit
		}
	}
	return digits(v/1000) + " EB"
}

func digits(v float64) string {
	switch {
	case v >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// duration formats microseconds for users.
func duration(us float64) string {
	switch {
	case us >= 999.5e3:
		return digits(us/1e6) + " s"
	case us >= 999.5:
		return digits(us/1e3) + " ms"
	}
	return digits(us) + " µs"
}

// grouped formats a count with separated thousands.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// exact formats bytes for tooltips: the exact number and the volume.
func exact(n uint64) string {
	if n < 1000 {
		return grouped(n) + " bytes"
	}
	return fmt.Sprintf("%s bytes (%s)", grouped(n), volume(n))
}

// ratio formats how many times b fits in a, if b is known.
func ratio(a, b uint64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f×", float64(a)/float64(b))
}
