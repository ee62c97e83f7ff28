package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// ARCHITECTURE.md names files that exist.
func TestArchitectureNamesFiles(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`((?:internal|cmd|docs)/[^` ]+)`").FindAllSubmatch(page, -1)
	if len(names) == 0 {
		t.Fatal("found no path in ARCHITECTURE.md")
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root, string(name[1]))); err != nil {
			t.Errorf("ARCHITECTURE.md names %s: %v", name[1], err)
		}
	}
}
