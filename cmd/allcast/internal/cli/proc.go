package cli

import (
	"os"
	"strings"
)

// ProcField returns the value of a field in a file of /proc, where lines have the form "name: value". Only Linux has
// such files.
func ProcField(path, name string) (value string, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}
