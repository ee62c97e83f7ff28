package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// compare builds the release again, from a copy of the sources in another directory, and with an empty build cache if
// cold is set. All bytes must be the same.
func (r *release) compare(w io.Writer, cold bool) error {
	dir, err := os.MkdirTemp("", "allcast-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, out := filepath.Join(dir, "source"), filepath.Join(dir, "out")
	if err := copySources(source); err != nil {
		return err
	}
	var env []string
	if cold {
		env = append(env, "GOCACHE="+filepath.Join(dir, "cache"))
	}
	if err := r.write(source, out, env); err != nil {
		return err
	}
	return same(w, r.out, out)
}

// copySources copies the files that git knows or does not ignore.
func copySources(to string) error {
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("listing the sources: %w", err)
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return err
		}
		name := filepath.Join(to, path)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// same compares the files of two directories.
func same(w io.Writer, a, b string) error {
	first, err := contents(a)
	if err != nil {
		return err
	}
	second, err := contents(b)
	if err != nil {
		return err
	}
	for name, text := range second {
		if first[name] != text {
			return fmt.Errorf("two builds differ in %s", name)
		}
	}
	if len(first) != len(second) {
		return fmt.Errorf("one build has %d files, the other %d", len(first), len(second))
	}
	_, err = fmt.Fprintf(w, "two builds gave the same bytes in all %d files\n", len(first))
	return err
}

func contents(dir string) (map[string]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		files[e.Name()] = string(text)
	}
	return files, nil
}
