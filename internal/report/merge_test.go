package report

import (
	"errors"
	"testing"
)

func TestMerge(t *testing.T) {
	a, b := somePage(t, "fat-tree:16,4,2"), somePage(t, "fat-tree:16,4,2")
	a.Command, b.Command = "one", "another"
	m, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Runs) != 2*len(a.Runs) || m.Command != "one\nanother" {
		t.Errorf("merged: %d runs of %d, command %q", len(m.Runs), len(a.Runs), m.Command)
	}
	if _, err := Merge(); !errors.Is(err, ErrInput) {
		t.Errorf("merging no page: %v", err)
	}
	for name, edit := range map[string]func(*Page){
		"network":   func(p *Page) { *p = *somePage(t, "fat-tree:16,4,3") },
		"operation": func(p *Page) { p.Op = "another" },
		"size":      func(p *Page) { p.Bytes = 1 },
		"run":       func(p *Page) { p.Runs = []Run{{Name: "x", LinkBytes: []uint64{1}}} },
	} {
		b := somePage(t, "fat-tree:16,4,2")
		edit(b)
		if _, err := Merge(a, b); !errors.Is(err, ErrInput) {
			t.Errorf("merging a page with a different %s: %v", name, err)
		}
	}
}
