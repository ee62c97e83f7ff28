package figure

import (
	"regexp"
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// wrap divides a text into lines that are no wider, as far as its words allow.
func wrap(s text.Style, words string, width vg.Length) string {
	var lines []string
	line := ""
	for _, piece := range breakable.FindAllString(words, -1) {
		if longer := line + piece; line == "" || s.Width(strings.TrimSpace(longer)) <= width {
			line = longer
			continue
		}
		lines = append(lines, strings.TrimSpace(line))
		line = piece
	}
	return strings.Join(append(lines, strings.TrimSpace(line)), "\n")
}

// breakable matches what a line break must not divide: it ends with spaces, or with a mark inside a word.
var breakable = regexp.MustCompile(`[^ /-]*(?:[/-]+| +|$)`)
