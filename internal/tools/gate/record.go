package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// record returns the path of the file that exists if a stage passed with the same inputs before.
func (g *gate) record(name string, inputs []string) (string, error) {
	args := append([]string{"git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, inputs...)
	list, err := g.output(args...)
	if err != nil {
		return "", err
	}
	if list == "" {
		return "", fmt.Errorf("%s: no file matches its inputs %v", name, inputs)
	}
	sum := sha256.New()
	for _, path := range strings.Split(strings.TrimRight(list, "\x00"), "\x00") {
		_, _ = fmt.Fprintf(sum, "%s\x00", path)
		if err := addFile(sum, path); err != nil {
			return "", err
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".cache", "allcast-ci", "passed", fmt.Sprintf("%s-%x", name, sum.Sum(nil)[:8])), nil
}

// addFile adds the content of a file. A file that git knows and that does not exist counts as absent.
func addFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.IsDir() { // a link to a directory
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
