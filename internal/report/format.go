package report

import (
	"fmt"
	"strconv"
)

// volume writes bytes for people, with three digits that count.
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

// duration writes microseconds for people.
func duration(us float64) string {
	switch {
	case us >= 999.5e3:
		return digits(us/1e6) + " s"
	case us >= 999.5:
		return digits(us/1e3) + " ms"
	}
	return digits(us) + " µs"
}

// grouped writes a count with its thousands apart.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// exact is for hovering: every byte, and how much that is.
func exact(n uint64) string {
	if n < 1000 {
		return grouped(n) + " bytes"
	}
	return fmt.Sprintf("%s bytes (%s)", grouped(n), volume(n))
}

func times(ratio float64) string { return fmt.Sprintf("%.2f×", ratio) }

// coordinate writes a position of the drawing, to a tenth of a unit.
func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
