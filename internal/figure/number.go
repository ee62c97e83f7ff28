package figure

import (
	"math"
	"strconv"
	"strings"
)

var (
	decimalPrefixes = []string{"", "k", "M", "G", "T", "P", "E"}
	binaryPrefixes  = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// unit returns the symbol that belongs to all numbers of an axis, if they are bytes.
func (a Axis) unit() string {
	if strings.HasSuffix(a.Label, "bytes") {
		return "B"
	}
	return ""
}

// formatNumber writes the value of a tick. Large values get a prefix, of powers of 1024 for bytes on a scale of base 2.
func formatNumber(v float64, base int, unit string) string {
	step, prefixes, from := 1000.0, decimalPrefixes, 10000.0
	if base == 2 {
		step, prefixes, from = 1024, binaryPrefixes, 1<<20
		if unit != "" {
			from = 1024
		}
	}
	i := 0
	if math.Abs(v) >= from {
		for i+1 < len(prefixes) && math.Abs(v) >= step {
			v /= step
			i++
		}
	}
	digits := 4
	if base == 2 {
		digits = 7
	}
	text := strconv.FormatFloat(v, 'g', digits, 64)
	if strings.Contains(text, "e") && math.Abs(v) >= 1e-4 {
		text = strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strings.TrimSpace(strings.Replace(text, "-", "−", 1) + " " + prefixes[i] + unit)
}
