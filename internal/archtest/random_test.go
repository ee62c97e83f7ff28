package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Tests draw the same values in every run, so that a change does not fail by chance.
func TestTestsDrawTheSame(t *testing.T) {
	rapid, fixed := map[string]bool{}, map[string]bool{} // by directory
	none := func(string) bool { return false }
	eachFile(t, filepath.Join("..", ".."), true, none, func(files *token.FileSet, file *ast.File) {
		for _, at := range unseeded(file) {
			t.Errorf("%s: draws from a source without a seed: make one with testenv.Seed", files.Position(at))
		}
		dir := filepath.Dir(files.Position(file.Package).Filename)
		rapid[dir] = rapid[dir] || imported(file, "pgregory.net/rapid") != ""
		fixed[dir] = fixed[dir] || len(uses(file, imported(file, Module+"/internal/testenv"), "Rapid")) > 0
	})
	for dir, is := range rapid {
		if is && !fixed[dir] {
			t.Errorf("%s has property tests whose seed changes: TestMain must call testenv.Rapid", dir)
		}
	}
}

// imported returns the name that a file gives to a package, or "" if it does not import it.
func imported(file *ast.File, pkg string) string {
	for _, i := range file.Imports {
		switch path, _ := strconv.Unquote(i.Path.Value); {
		case path != pkg:
		case i.Name != nil:
			return i.Name.Name
		default:
			return filepath.Base(strings.TrimSuffix(pkg, "/v2"))
		}
	}
	return ""
}

// uses finds the names of a package that a file uses, except those that begin with one of but; only one, if given.
func uses(file *ast.File, pkg, only string, but ...string) (found []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok || text(s.X) != pkg || pkg == "" || only != "" && s.Sel.Name != only {
			return true
		}
		if !slices.ContainsFunc(but, func(prefix string) bool { return strings.HasPrefix(s.Sel.Name, prefix) }) {
			found = append(found, s.Pos())
		}
		return true
	})
	return found
}

// unseeded finds the uses of the functions of package rand that share a random source.
func unseeded(file *ast.File) (found []token.Pos) {
	for _, pkg := range []string{"math/rand", "math/rand/v2"} {
		found = append(found, uses(file, imported(file, pkg), "", "New", "Rand", "Source", "PCG", "ChaCha8", "Zipf")...)
	}
	return found
}

// The check finds the draws that it looks for.
func TestUnseededIsFound(t *testing.T) {
	const source = `package p
import chance "math/rand/v2"
var r *chance.Rand = chance.New(chance.NewPCG(1, 2))
func f() { _, _ = chance.IntN(3), r.IntN(3); chance.Shuffle(0, nil) }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := unseeded(file); len(found) != 2 {
		t.Errorf("found %d draws, want 2", len(found))
	}
}
