package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// elsewhere lists the variables of the system, which packages other than settings may read.
var elsewhere = map[string]bool{`"XDG_RUNTIME_DIR"`: true}

// unchecked lists directories of settings itself, of tools and of test support.
var unchecked = map[string]bool{
	"bench": true, "cmd/allcast/internal/clitest": true, "internal/e2e": true, "internal/settings": true,
	"internal/testenv": true, "internal/tools": true,
}

// Only package settings reads variables of Allcast and of launchers, so that they have one meaning.
func TestSettingsReadTheEnvironment(t *testing.T) {
	skip := func(dir string) bool { return unchecked[dir] }
	eachSource(t, filepath.Join("..", ".."), skip, func(files *token.FileSet, file *ast.File) {
		for _, at := range readsEnvironment(file) {
			t.Errorf("%s: reads the environment: only package settings may", files.Position(at))
		}
	})
}

// readsEnvironment finds all uses of os.Getenv and os.LookupEnv, except calls for the variables elsewhere.
func readsEnvironment(file *ast.File) (found []token.Pos) {
	allowed := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr: // visited before its function
			if len(n.Args) == 1 {
				allowed[n.Fun] = elsewhere[text(n.Args[0])]
			}
		case *ast.SelectorExpr:
			if name := text(n.X) + "." + n.Sel.Name; (name == "os.Getenv" || name == "os.LookupEnv") && !allowed[n] {
				found = append(found, n.Pos())
			}
		}
		return true
	})
	return found
}

// text is the source of a literal or an identifier.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Value
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// The check finds the reads that it looks for.
func TestEnvironmentIsFound(t *testing.T) {
	const source = `package p
var read = os.LookupEnv
func f() { _, _ = os.Getenv("RANK"), os.Getenv("XDG_RUNTIME_DIR") }`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := readsEnvironment(file); len(found) != 2 {
		t.Errorf("found %d reads, want 2", len(found))
	}
}
