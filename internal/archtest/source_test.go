package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// eachSource parses the Go files below root that are not tests. It leaves out hidden directories and those
// for which skip, with the path from root, reports true.
func eachSource(t *testing.T, root string, skip func(dir string) bool, check func(*token.FileSet, *ast.File)) {
	t.Helper()
	eachFile(t, root, false, skip, check)
}

// eachFile parses Go files as eachSource does, either those of tests or all others.
func eachFile(
	t *testing.T, root string, tests bool, skip func(dir string) bool, check func(*token.FileSet, *ast.File),
) {
	t.Helper()
	checked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name, _ := filepath.Rel(root, path); {
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || skip(filepath.ToSlash(name))):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") != tests:
			return nil
		}
		checked++
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err == nil {
			check(files, file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Errorf("%s has no file to check: have the packages moved?", root)
	}
}
