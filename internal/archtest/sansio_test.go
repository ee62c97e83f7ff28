package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// sansIO are the packages without goroutines, sockets, clocks and randomness.
// The linter keeps them from importing any (depguard in .golangci.yml), but
// goroutines and channels need no import.
var sansIO = []string{"wire", "step", "place", "mcast", "node", "p2p", "inc", "agree", "fabric/session"}

// serial are further packages without goroutines, which therefore need no race detector.
var serial = []string{"sim", "topology", "model", "model/dpa"}

func TestSansIOHasNoGoroutines(t *testing.T) {
	all := func(string) bool { return false }
	for _, name := range slices.Concat(sansIO, serial) {
		eachSource(t, filepath.Join("..", name), all, func(files *token.FileSet, file *ast.File) {
			for at, what := range concurrency(file) {
				t.Errorf("%s: %s: threads belong to the engine", files.Position(at), what)
			}
		})
	}
}

// concurrency finds everything in a file that starts or waits for a goroutine.
func concurrency(file *ast.File) map[token.Pos]string {
	found := map[token.Pos]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found[n.Pos()] = "a go statement"
		case *ast.SelectStmt:
			found[n.Pos()] = "a select statement"
		case *ast.ChanType:
			found[n.Pos()] = "a channel"
		}
		return true
	})
	return found
}

// The check itself must find what it looks for.
func TestConcurrencyIsFound(t *testing.T) {
	const source = `package p
func f() {
	c := make(chan int)
	go f()
	select { case <-c: }
}`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := concurrency(file); len(found) != 3 {
		t.Errorf("found %v, want a channel, a go and a select statement", found)
	}
}
