//go:build linux && cgo

package tests

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast"
)

const header = "../include/allcast.h"

func TestABI(t *testing.T) {
	out := job{ranks: 1}.start(t, "abi")
	if want := "version " + allcast.Version + "\n"; !strings.Contains(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
}

// The library exports the functions of the header, and nothing else.
func TestSymbols(t *testing.T) {
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	comments := regexp.MustCompile(`(?s)/\*.*?\*/`)
	declaration := regexp.MustCompile(`(?m)^(?:int|void|const char \*)\s*(allcast_\w+)\(`)
	var declared []string
	for _, m := range declaration.FindAllSubmatch(comments.ReplaceAll(text, nil), -1) {
		declared = append(declared, string(m[1]))
	}
	lib, err := elf.Open(plain("liballcast.so"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lib.Close() }()
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			exported = append(exported, s.Name)
		}
	}
	slices.Sort(declared)
	slices.Sort(exported)
	if !slices.Equal(declared, exported) {
		t.Errorf("declared and exported functions differ:\n%v\n%v", declared, exported)
	}
	if len(declared) < 60 {
		t.Errorf("the header declares only %d functions", len(declared))
	}
}

// C++ programs can use the header as it is.
func TestCPlusPlus(t *testing.T) {
	source := filepath.Join(t.TempDir(), "x.cc")
	program := `#include "allcast.h"
int main() { allcast_call c = ALLCAST_CALL_INIT; return allcast_barrier(0, &c) == ALLCAST_ERR_INVALID ? 0 : 1; }`
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(plain("x"))
	err := command("g++", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"+dir, "-o", source+".out", source, "-L"+dir,
		"-lallcast", "-Wl,-rpath,"+dir)
	if err == nil {
		err = command(source + ".out")
	}
	if err != nil {
		t.Error(err)
	}
}
