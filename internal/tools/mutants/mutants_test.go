package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every mutant still applies to the source, and its result is Go.
func TestMutantsApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		names[m.name] = true
		source, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(m.file)))
		if err != nil {
			t.Fatal(err)
		}
		changed, err := m.apply(string(source))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// A text that is missing, or that is there twice, is an error.
func TestStaleMutant(t *testing.T) {
	m := mutant{file: "a.go", old: "x == y", wrong: "x != y"}
	for _, source := range []string{"", "x == y; x == y"} {
		if _, err := m.apply(source); err == nil {
			t.Errorf("%q: no error", source)
		}
	}
	if got, err := m.apply("if x == y {"); err != nil || got != "if x != y {" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFirstFailure(t *testing.T) {
	for _, c := range []struct{ name, output, want string }{
		{"passed", "\x16=== RUN   TestA\n\x16--- PASS: TestA (0.00s)\nPASS\n", ""},
		{
			"failed",
			"\x16=== RUN   TestA\n    a_test.go:3: hm\n\x16=== NAME  TestB/1\n    b_test.go:5: seed 7: wrong\n" +
				"        replay: so\n\x16--- PASS: TestA (0.00s)\n\x16--- FAIL: TestB/1 (0.01s)\n",
			"TestB/1: seed 7: wrong",
		},
		{
			"panicked", "\x16=== RUN   TestA\n\x16--- FAIL: TestA (0.00s)\npanic: index out of range\n",
			"TestA: panic: index out of range",
		},
	} {
		if got := firstFailure(strings.NewReader(c.output)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
