package main

import (
	_ "embed" // for the mutants
	"fmt"
	"regexp"
	"strings"
)

// mutant is a plausible mistake in the code that receives.
type mutant struct {
	name, file string
	old, wrong string // whole lines of the file, and their replacement
}

// mutantsText has a block of lines for each mutant: its name, its file, and the change as in a patch.
//
//go:embed mutants.txt
var mutantsText string

var mutantBlock = regexp.MustCompile(`^([^-+].*)\n([^-+].*)\n((?:-.*\n)+)((?:\+.*\n)+)$`)

func parseMutants(text string) (list []mutant, err error) {
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		part := mutantBlock.FindStringSubmatch(block + "\n")
		if part == nil {
			return nil, fmt.Errorf("want a name, a file, lines with - and lines with +:\n%s", block)
		}
		old, wrong := strings.ReplaceAll("\n"+part[3], "\n-", "\n"), strings.ReplaceAll("\n"+part[4], "\n+", "\n")
		list = append(list, mutant{part[1], part[2], old, wrong})
	}
	return list, nil
}

// apply returns the source with the mistake. The source must have the lines to replace exactly once, so
// that a mutant cannot become stale unnoticed.
func (m *mutant) apply(source string) (string, error) {
	if n := strings.Count(source, m.old); n != 1 {
		return "", fmt.Errorf("%s has these lines %d times, want once:%s", m.file, n, m.old)
	}
	return strings.Replace(source, m.old, m.wrong, 1), nil
}
