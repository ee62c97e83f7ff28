package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printJSON writes one object on a line of its own.
func (a *app) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	if _, err := a.stdout.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// table collects what people read: notes, then aligned rows.
type table struct {
	notes []string
	rows  [][]string
	left  bool // align to the left, for rows that are mostly words
}

func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// row adds a row; the first is the header.
func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case float64:
			row[i] = fmt.Sprintf("%.2f", c)
		default:
			row[i] = fmt.Sprint(c)
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) print(w io.Writer) error {
	var text strings.Builder
	for _, n := range t.notes {
		text.WriteString("# " + n + "\n")
	}
	flags, end := tabwriter.AlignRight, "\t" // only cells that end in a tab are padded
	if t.left {
		flags, end = 0, ""
	}
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', flags)
	for _, row := range t.rows {
		_, _ = fmt.Fprintln(tw, strings.Join(row, "\t")+end)
	}
	_ = tw.Flush() // into memory
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
