package main

import "github.com/allcast/allcast/internal/model/dpa"

// compare prints what docs/dpa.md shows.
func (*modelDPACmd) compare(a *app) error {
	tables, err := dpa.Compare()
	if err != nil {
		return err
	}
	return a.printComparison(tables)
}

func (a *app) printComparison(tables []*dpa.Table) error {
	if a.json {
		return printDPAJSON(a, tables)
	}
	for _, c := range tables {
		t := table{left: true}
		t.note("%s", c.Title)
		for _, n := range c.Notes {
			t.note("  %s", n)
		}
		t.row(anys(c.Columns)...)
		for _, row := range c.Rows {
			t.row(anys(row)...)
		}
		t.rows = append(t.rows, nil) // a line between two tables
		if err := t.print(a.stdout); err != nil {
			return err
		}
	}
	t := table{left: true}
	t.note("Parameters; only those marked fitted were chosen to meet a figure.")
	t.row("what", "value", "from", "source")
	for _, p := range dpa.Parameters() {
		t.row(p.Name, p.Value, p.Kind, p.Source)
	}
	return t.print(a.stdout)
}

func printDPAJSON(a *app, tables []*dpa.Table) error {
	for _, t := range tables {
		err := a.printJSON(struct {
			Model string `json:"model"`
			*dpa.Table
		}{"dpa", t})
		if err != nil {
			return err
		}
	}
	return a.printJSON(struct {
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
