package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// The page is what the model says today.
func TestAcceleratorPageIsCurrent(t *testing.T) {
	if testenv.Race {
		t.Skip("a hundred runs of the model: without the race detector only")
	}
	file := filepath.Join(t.TempDir(), "dpa.md")
	if err := accelerator(file); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../docs/dpa.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/dpa.md is not what the model says: make docs PAGES=docs/dpa.md")
	}
}
