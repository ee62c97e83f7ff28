package perf

import (
	"os"

	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// checkRaw reports that the log cannot be written before any rank starts.
func checkRaw(path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil // opening and closing a pipe would end its reader
	}
	f, err := createRaw(path)
	f.Discard()
	return err
}

// createRaw opens the log of raw times; an empty path gives a nil file.
func createRaw(path string) (*cli.File, error) {
	f, err := cli.CreateFile(path, "the raw times")
	if err != nil {
		return nil, cli.Usagef("--raw: %v; want a file that can be written", err)
	}
	if f != nil {
		_, _ = f.Write([]byte(bench.RawHeader)) // later writes return the error again
	}
	return f, nil
}
