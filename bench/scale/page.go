//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
)

// Marks in a page. Rows stand between sectionStart and sectionEnd, each behind its own mark, so that one
// row can be measured again without the others.
const (
	sectionStart = "<!-- scale -->\n"
	sectionEnd   = "<!-- end of scale -->\n"
	rowStart     = "<!-- scale: %s -->\n"
	rowEnd       = "<!-- end of row -->\n"
)

// replaceRow replaces a row in a page. A new row is put behind the other rows.
func replaceRow(page, name, text string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	updated, err := withRow(string(old), name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(updated), 0o644)
}

func withRow(page, name, text string) (string, error) {
	head, rest, found := strings.Cut(page, sectionStart)
	rows, tail, also := strings.Cut(rest, sectionEnd)
	if !found || !also {
		return "", fmt.Errorf("the marks %q and %q are missing",
			strings.TrimSpace(sectionStart), strings.TrimSpace(sectionEnd))
	}
	mark := fmt.Sprintf(rowStart, name)
	before, old, found := strings.Cut(rows, mark)
	after := ""
	if found {
		if _, after, also = strings.Cut(old, rowEnd); !also {
			return "", fmt.Errorf("the mark %q is missing behind %q", strings.TrimSpace(rowEnd), strings.TrimSpace(mark))
		}
	}
	return head + sectionStart + before + mark + "\n" + text + "\n" + rowEnd + after + sectionEnd + tail, nil
}
