package settings

import (
	"fmt"
	"slices"
	"strings"
)

const prefix = "ALLCAST_"

// otherVariables are read by the bindings.
var otherVariables = []string{
	"ALLCAST_LIBRARY", "ALLCAST_MPI", "ALLCAST_TORCH_PIECE", "ALLCAST_TORCH_PIECES", "ALLCAST_TORCH_PINNED",
	"ALLCAST_TORCH_STREAM_WAIT",
}

// ownPrefixes begin the names of variables that are not listed here: those of the MPI library, and those of tests and
// tools of this project.
var ownPrefixes = []string{
	"ALLCAST_MPI_", "ALLCAST_TEST_", "ALLCAST_CHAOS", "ALLCAST_COMMAND", "ALLCAST_EXHAUSTIVE", "ALLCAST_VERBS_GUEST",
}

// UnknownVariables describes the variables in environ that have the prefix ALLCAST_ and no meaning, each with the
// nearest name that has one. environ is a result of os.Environ.
func UnknownVariables(environ []string) (warnings []string) {
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, prefix) || isVariable(name) {
			continue
		}
		warnings = append(warnings, fmt.Sprintf("%s is set, but no such variable exists, and it has no effect: "+
			"the nearest name is %s", name, nearest(name)))
	}
	slices.Sort(warnings)
	return warnings
}

func isVariable(name string) bool {
	return slices.Contains(variableNames(), name) ||
		slices.ContainsFunc(ownPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func variableNames() []string {
	names := slices.Clone(otherVariables)
	for i := range Variables {
		names = append(names, Variables[i].Name)
	}
	return names
}

// nearest returns the variable with the smallest distance from name.
func nearest(name string) string {
	return slices.MinFunc(variableNames(), func(a, b string) int { return distance(name, a) - distance(name, b) })
}

// distance is the number of letters to insert, remove or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(above+1, row[j]+1, replaced)
			diagonal = above
		}
	}
	return row[len(b)]
}
