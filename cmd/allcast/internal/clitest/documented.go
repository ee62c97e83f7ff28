package clitest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// page is docs/json.md: the fields of every object, by section.
type page map[string]section

// section describes one kind of object: whether a field is always there, by the field's path.
type section map[string]bool

// readPage parses docs/json.md once.
var readPage = sync.OnceValues(func() (page, error) {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, e := os.Stat(filepath.Join(dir, "go.mod")); e == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	text, e := os.ReadFile(filepath.Join(dir, "docs", "json.md"))
	if err := cmp.Or(err, e); err != nil {
		return nil, err
	}
	return parsePage(string(text))
})

var fieldRow = regexp.MustCompile("^\\| `([^`]+)` \\|([^|]*)\\|([^|]*)\\|([^|]*)\\|$")

func parsePage(text string) (page, error) {
	all := page{}
	var now section
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutPrefix(line, "## "); ok {
			now = section{"schema": true}
			all[name] = now
			continue
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		row := fieldRow.FindStringSubmatch(line)
		switch {
		case row == nil || strings.TrimSpace(row[4]) == "":
			return nil, fmt.Errorf("docs/json.md: want a field, a unit, a condition and a meaning in %q", line)
		case now == nil:
			return nil, fmt.Errorf("docs/json.md: %q is in no section", line)
		}
		if _, twice := now[row[1]]; twice {
			return nil, fmt.Errorf("docs/json.md: %s is there twice", row[1])
		}
		now[row[1]] = strings.TrimSpace(row[3]) == ""
	}
	// An object that only holds documented fields needs no line of its own.
	for _, s := range all {
		for path := range maps.Clone(s) {
			for i := range path {
				if path[i] == '.' && !strings.HasSuffix(path[:i], "[]") {
					if _, ok := s[path[:i]]; !ok {
						s[path[:i]] = false
					}
				}
			}
		}
	}
	return all, nil
}

// CheckLine is CheckDocumented for a line of JSON.
func CheckLine(t testing.TB, name, line string) {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if err := CheckDocumented(name, object); err != nil {
		t.Errorf("%s: %v", line, err)
	}
}

// Sections lists the sections of docs/json.md.
func Sections() ([]string, error) {
	p, err := readPage()
	return slices.Sorted(maps.Keys(p)), err
}

// CheckDocumented compares an object with a section of docs/json.md, or with all sections if there is no name. The
// section must list every field of the object, and the object must have every field that is always there.
func CheckDocumented(name string, object map[string]any) error {
	p, err := readPage()
	if err != nil {
		return err
	}
	names := []string{name}
	if name == "" {
		names = slices.Sorted(maps.Keys(p))
	}
	found := map[string]string{}
	fields(found, "", object)
	var errs []error
	for _, n := range names {
		s, ok := p[n]
		if !ok {
			return fmt.Errorf("docs/json.md has no section %q", n)
		}
		err := s.check(found)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("section %q of docs/json.md: %w", n, err))
	}
	return errors.Join(errs...)
}

func (s section) check(found map[string]string) error {
	for path := range found {
		if strings.HasSuffix(path, "[]") {
			continue // elements; their fields count
		}
		_, ok := s[path]
		if i := strings.LastIndexByte(path, '.'); !ok && i >= 0 {
			_, ok = s[path[:i]+".*"]
		}
		if !ok {
			return fmt.Errorf("%s is missing on the page", path)
		}
	}
	for path, always := range s {
		if !always || strings.HasSuffix(path, ".*") || found[path] != "" {
			continue
		}
		if i := strings.LastIndexByte(path, '.'); i < 0 || found[path[:i]] == "object" {
			return fmt.Errorf("%s is missing in the object", path)
		}
	}
	return nil
}

// fields collects the paths of all fields of a value, and their kinds.
func fields(found map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		if path != "" {
			found[path] = "object"
		}
		for name, x := range v {
			if path != "" {
				name = path + "." + name
			}
			fields(found, name, x)
		}
	case []any:
		found[path] = "list"
		for _, x := range v {
			fields(found, path+"[]", x)
		}
	default:
		found[path] = "value"
	}
}
