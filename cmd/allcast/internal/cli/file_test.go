package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Errors name the file that the user gave, and never the temporary one.
func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "none", "x.html")
	_, err := CreateFile(path, "the page")
	check := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), path+":") || strings.Contains(err.Error(), ".tmp") {
			t.Errorf("error %v; want one that names %s", err, path)
		}
	}
	check(err)

	path = filepath.Join(dir, "x.html")
	f, err := CreateFile(path, "the page")
	if err != nil {
		t.Fatal(err)
	}
	_ = f.file.Close()
	_, _ = f.Write([]byte("text"))
	check(f.Commit())

	if f, err = CreateFile(path, "the page"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // a directory that appears meanwhile cannot be replaced
		t.Fatal(err)
	}
	check(f.Commit())
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}
