package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// flagged finds the name of a flag in a message.
var flagged = regexp.MustCompile(`(^|[^\w-])--[a-z]`)

// A program that uses the library has no flags of the command. Messages of the library name options and variables.
func TestLibraryNamesNoFlags(t *testing.T) {
	_, library, _ := load(t, Module)
	_, files, _ := load(t, Module+"/transfer")
	checked := map[string]bool{"internal/aggregate": true} // only "allcast aggregator" starts one, and has these flags
	for _, pkg := range append(library.Packages(), files.Packages()...) {
		dir := filepath.Join(root, pkg)
		if _, err := os.Stat(dir); err != nil || checked[pkg] {
			continue // also packages of other modules
		}
		checked[pkg] = true
		eachSource(t, dir, func(string) bool { return true }, func(files *token.FileSet, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && flagged.MatchString(lit.Value) {
					t.Errorf("%s: a message of the library names a flag of the command: %s", files.Position(lit.Pos()), lit.Value)
				}
				return true
			})
		})
	}
	if len(checked) < 20 {
		t.Errorf("only %d packages were checked", len(checked))
	}
}
