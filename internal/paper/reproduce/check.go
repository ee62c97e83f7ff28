package reproduce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/paper"
)

// fileName is the form of names of tables and figures. entryFile is taken.
var fileName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// check checks that an outcome can be written, and draws its figures.
func check(o *paper.Outcome) (svgs []string, err error) {
	if o == nil {
		return nil, errNoOutcome
	}
	tables, figures := map[string]bool{}, map[string]bool{entryName: true}
	for _, t := range o.Tables {
		if !fileName.MatchString(t.Name) || tables[t.Name] {
			return nil, fmt.Errorf("table %q: its name is no file name, or is used twice", t.Name)
		}
		tables[t.Name] = true
		for i, row := range t.Rows {
			if len(row) != len(t.Columns) {
				return nil, fmt.Errorf("table %q: row %d has %d cells for %d columns", t.Name, i+1, len(row), len(t.Columns))
			}
		}
	}
	for i := range o.Figures {
		f := &o.Figures[i]
		if !fileName.MatchString(f.Name) || figures[f.Name] {
			return nil, fmt.Errorf("figure %q: its name is no file name, or is used twice", f.Name)
		}
		figures[f.Name] = true
		var svg bytes.Buffer
		if err := figure.Draw(&svg, &f.Figure); err != nil {
			return nil, err
		}
		svgs = append(svgs, svg.String())
	}
	_, err = json.Marshal(o) // a number that is not finite
	return svgs, err
}
