package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// SchemaVersion is the version of the format of an object that does not carry its own. docs/json.md describes the
// formats. A new field keeps the version; a field that changes its meaning or disappears raises it.
const SchemaVersion = 1

// PrintJSON writes one object on a line of its own. It adds the field "schema", unless the object has it.
func (e *Env) PrintJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return e.Print(string(withSchema(line)) + "\n")
}

func withSchema(object []byte) []byte {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil || fields["schema"] != nil {
		return object
	}
	comma := ","
	if len(fields) == 0 {
		comma = ""
	}
	return fmt.Appendf(object[:len(object)-1:len(object)-1], `%s"schema":%d}`, comma, SchemaVersion)
}

// PrintResult writes a result as an object or, without --json, as text.
func (e *Env) PrintResult(v any, text string) error {
	if e.JSON {
		return e.PrintJSON(v)
	}
	return e.Print(text)
}

// Print writes a result for people.
func (e *Env) Print(text string) error {
	if _, err := io.WriteString(e.Stdout, text); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// PrintTable writes a table for people.
func (e *Env) PrintTable(t *Table) error { return e.Print(t.String()) }

// Table collects notes and aligned rows.
type Table struct {
	Left  bool // left-aligned cells, for rows that are mostly words
	notes []string
	rows  [][]string
}

// Note adds a line above the rows.
func (t *Table) Note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// Row adds a row. The first row is the header.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Cell(c)
	}
	t.rows = append(t.rows, row)
}

func (t *Table) String() string {
	var text strings.Builder
	for _, n := range t.notes {
		text.WriteString("# " + n + "\n")
	}
	flags, end := tabwriter.AlignRight, "\t" // only cells that end in a tab are padded
	if t.Left {
		flags, end = 0, ""
	}
	tw := tabwriter.NewWriter(&text, 0, 0, 2, ' ', flags)
	for _, row := range t.rows {
		_, _ = fmt.Fprintln(tw, strings.Join(row, "\t")+end)
	}
	_ = tw.Flush() // into memory
	return text.String()
}

// Cell writes a value in a table.
func Cell(v any) string {
	if f, ok := v.(float64); ok {
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprint(v)
}

// YesNo writes a truth value for people.
func YesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
