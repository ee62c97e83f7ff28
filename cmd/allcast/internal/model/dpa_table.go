package model

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model/dpa"
)

// printComparison prints the tables of docs/dpa.md.
func printComparison(e *cli.Env, tables []*dpa.Table) error {
	if e.JSON {
		return printTablesJSON(e, tables)
	}
	for _, c := range tables {
		t := cli.Table{Left: true}
		t.Note("%s", c.Title)
		for _, n := range c.Notes {
			t.Note("  %s", n)
		}
		t.Row(anys(c.Columns)...)
		for _, row := range c.Rows {
			t.Row(anys(row)...)
		}
		t.Row() // an empty line between two tables
		if err := e.PrintTable(&t); err != nil {
			return err
		}
	}
	t := cli.Table{Left: true}
	t.Note("Parameters; only those marked fitted were chosen to match a figure.")
	t.Row("what", "value", "from", "source")
	for _, p := range dpa.Parameters() {
		t.Row(p.Name, p.Value, p.Kind, p.Source)
	}
	return e.PrintTable(&t)
}

func printTablesJSON(e *cli.Env, tables []*dpa.Table) error {
	type line struct {
		Model string `json:"model"`
		*dpa.Table
	}
	if err := printJSON(e, tables, func(t *dpa.Table) any { return line{"dpa", t} }); err != nil {
		return err
	}
	return e.PrintJSON(struct {
		Model      string          `json:"model"`
		Parameters []dpa.Parameter `json:"parameters"`
	}{"dpa", dpa.Parameters()})
}

func anys(words []string) []any {
	out := make([]any, len(words))
	for i, w := range words {
		out[i] = w
	}
	return out
}
