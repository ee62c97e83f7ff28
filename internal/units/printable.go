package units

import (
	"strings"
	"unicode"
)

// Printable replaces the control characters of another process, which terminals must not see.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}
