package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// markdownColumns is the width of a line of Markdown.
const markdownColumns = 100

var (
	listItem = regexp.MustCompile(`^\s*([-*+]|\d+[.)])\s`)
	longWord = regexp.MustCompile(`(https?://|\]\()\S{50,}`)
)

func TestMarkdownFitsColumns(t *testing.T) {
	root := filepath.Join("..", "..")
	checked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir // not part of the repository
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		checked++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, line := range wideLines(string(text)) {
			t.Errorf("%s:%d: more than %d columns: wrap the line", path, line, markdownColumns)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked == 0 {
		t.Error("found no Markdown file: has the repository's root moved?")
	}
}

// wideLines returns the numbers of lines that are too long. Tables, code, headings and lines with a
// long URL cannot be wrapped, so they may be longer.
func wideLines(text string) (wide []int) {
	fence := ""   // the mark that ends the current fenced block
	item := 0     // indentation of the text of the current list item
	code := false // in an indented code block
	blank := true // the previous line was blank
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case fence != "":
			if trimmed == fence {
				fence = ""
			}
			continue
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:3]
			continue
		case trimmed == "":
			blank = true
			continue
		}
		if m := listItem.FindString(line); m != "" && indent < item+4 {
			item, code = len(m), false
		} else if indent == 0 && blank {
			item = 0
		}
		if blank || code {
			code = indent >= item+4
		}
		blank = false
		table := strings.HasPrefix(trimmed, "|")
		heading := strings.HasPrefix(line, "#")
		if utf8.RuneCountInString(line) > markdownColumns && !code && !table && !heading && !longWord.MatchString(line) {
			wide = append(wide, i+1)
		}
	}
	return wide
}

func TestWideLines(t *testing.T) {
	long := strings.Repeat("word ", 25)
	for _, c := range []struct {
		name, text string
		want       []int
	}{
		{"a paragraph", "short\n" + long + "\n", []int{2}},
		{"a list item", "- short\n  " + long + "\n", []int{2}},
		{"a paragraph of a list item", "- short\n\n  " + long + "\n", []int{3}},
		{"a nested list item", "- short\n    - " + long + "\n", []int{2}},
		{"a paragraph after code", "    code\n\n" + long + "\n", []int{3}},
		{"a paragraph with a deep continuation", "short\n     " + long + "\n", []int{2}},
		{"a table", "| a |\n|---|\n| " + long + " |\n", nil},
		{"fenced code", "```sh\n" + long + "\n```\n", nil},
		{"indented code", "short\n\n    short\n    " + long + "\n", nil},
		{"code of a list item", "- short\n\n      " + long + "\n", nil},
		{"a heading", "# " + long + "\n", nil},
		{"a long URL", "see [this page](https://example.com/" + strings.Repeat("x", 100) + ")\n", nil},
		{"multi-byte characters", strings.Repeat("é", markdownColumns) + "\n", nil},
	} {
		if got := wideLines(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got lines %v, want %v", c.name, got, c.want)
		}
	}
}
