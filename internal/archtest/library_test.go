package archtest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// libraryModules are the modules that a program gets when it imports the library. Parsers
// of command lines, terminal output, plots and metrics clients do not belong there.
var libraryModules = []string{
	Module,
	"github.com/cilium/ebpf",         // the kernel's part of the receive path
	"github.com/vishvananda/netlink", // internal/offload/napi
	"github.com/vishvananda/netns",   // internal/offload/napi
	"golang.org/x/net",
	"golang.org/x/sys",
}

func TestModulesOfTheLibrary(t *testing.T) {
	_, all, module := load(t, Module)
	reported := map[string]bool{}
	for _, pkg := range all.Packages() {
		if m := module[pkg]; !slices.Contains(libraryModules, m) && !reported[m] {
			reported[m] = true
			t.Errorf("the library reaches module %s: %s", m, strings.Join(all.Chain(".", pkg), " -> "))
		}
	}
	if len(all) < 20 {
		t.Errorf("only %d packages were checked: %v", len(all), all.Packages())
	}
	// The linter applies the same rule to single imports.
	rules, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, denied, ok := strings.Cut(string(rules), "\n        no-user-interface:\n")
	if !ok {
		t.Fatal("the rule no-user-interface is missing in .golangci.yml")
	}
	denied, _, _ = strings.Cut(denied, "\n\n")
	for _, m := range libraryModules {
		if strings.Contains(denied, "pkg: "+m) {
			t.Errorf("%s is both allowed here and denied by the linter", m)
		}
	}
}
