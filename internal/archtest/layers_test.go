package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// load loads the graph. The test cache does not see what `go list` reads: walking the
// source tells it that the test depends on every file.
func load(t *testing.T, pattern string) (own, all Graph, module map[string]string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if own, all, module, err = Load(pattern); err != nil {
		t.Fatal(err)
	}
	return own, all, module
}

func TestLayers(t *testing.T) {
	g, _, _ := load(t, Module+"/...")
	for _, w := range Check(g) {
		t.Error(w)
	}
	if len(g) < 30 {
		t.Errorf("only %d packages were checked: %v", len(g), g.Packages())
	}
	got, err := os.ReadFile(filepath.Join(root, "docs", "packages.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Page(g) {
		t.Error("docs/packages.md is out of date: run make packages")
	}
}

// The tables must be sound for Check to mean anything.
func TestLayersOnlyExceptLowerOnes(t *testing.T) {
	for i, l := range Layers {
		for _, name := range l.Except {
			if !slices.ContainsFunc(Layers[i+1:], func(lower Layer) bool { return lower.Name == name }) {
				t.Errorf("layer %s excepts %q, which is not a lower layer", l.Name, name)
			}
		}
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		g    Graph
		want string
	}{
		"upwards": {
			Graph{"internal/sim": {"."}, ".": nil},
			"internal/sim (layer networks) may not import . (layer library)",
		},
		"exception": {Graph{".": {"internal/sim"}, "internal/sim": nil}, ". (layer library) may not import internal/sim"},
		"sans-IO":   {Graph{"internal/node": {"internal/units"}, "internal/units": nil}, "may not import internal/units"},
		"no layer": {
			Graph{"internal/new": nil, ".": {"internal/new"}},
			"package internal/new is in no layer: add it to Layers",
		},
		"allowed": {Graph{
			".":                      {"internal/model", "internal/fabric/ip"},
			"internal/model":         {"internal/topology"},
			"internal/fabric/ip":     nil,
			"internal/topology":      nil,
			"cmd/allcast/internal/x": {"."},
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Check(c.g)
			if c.want == "" && got != nil || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("Check reports %q, want one line with %q", got, c.want)
			}
		})
	}
}

func TestReduced(t *testing.T) {
	g := Graph{"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": nil}
	got := g.Reduced()
	for pkg, want := range map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": nil} {
		if !slices.Equal(got[pkg], want) {
			t.Errorf("%s imports %v after the reduction, want %v", pkg, got[pkg], want)
		}
	}
	if got := g.Chain("a", "d"); !slices.Equal(got, []string{"a", "d"}) {
		t.Errorf("the chain from a to d is %v", got)
	}
	if got := g.Chain("d", "a"); got != nil {
		t.Errorf("there is a chain from d to a: %v", got)
	}
}
