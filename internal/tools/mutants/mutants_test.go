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
	mutants, err := parseMutants(mutantsText)
	if err != nil {
		t.Fatal(err)
	}
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

// Lines that are missing, or that are there twice, are an error.
func TestStaleMutant(t *testing.T) {
	list, err := parseMutants("swap\na.go\n-\tif x == y {\n+\tif x != y {\n+\t\tz()\n")
	if err != nil || len(list) != 1 || list[0].name != "swap" || list[0].file != "a.go" {
		t.Fatalf("got %+v, %v", list, err)
	}
	for _, source := range []string{"", "\tif x == y {", "\n\tif x == y {\n\n\tif x == y {\n", "\n\t\tif x == y {\n"} {
		if _, err := list[0].apply(source); err == nil {
			t.Errorf("%q: no error", source)
		}
	}
	if got, err := list[0].apply("\n\tif x == y {\n"); err != nil || got != "\n\tif x != y {\n\t\tz()\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestParseMutantsRefuses(t *testing.T) {
	for _, text := range []string{
		"", "name\na.go", "name\n-x\n+y", "name\na.go\n-x", "name\na.go\n+y\n-x", "name\na.go\nx\n+y",
	} {
		if list, err := parseMutants(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, list)
		}
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
