package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/allcast/allcast/internal/topology"
)

// dataFormat identifies our files and their version.
const dataFormat = "allcast-report/1"

// maxData limits the size of a file. It is above the largest possible page.
const maxData = 256 << 20

// Data is the file form of a Page, so that measurements can be drawn later and side by side.
type Data struct {
	Format   string `json:"format"` // filled in by Save
	Title    string `json:"title,omitempty"`
	Command  string `json:"command,omitempty"`
	Notes    string `json:"notes,omitempty"`
	Op       string `json:"op,omitempty"`
	Bytes    uint64 `json:"bytes,omitempty"`
	Topology string `json:"topology"` // spec, see package topology
	Runs     []Run  `json:"runs"`
}

// Save writes a file that Load reads, one line of JSON.
func (d *Data) Save(w io.Writer) error {
	if _, err := d.Page(); err != nil {
		return err
	}
	out := *d
	out.Format = dataFormat
	if err := json.NewEncoder(w).Encode(&out); err != nil {
		return fmt.Errorf("writing the report's data: %w", err)
	}
	return nil
}

// Load reads a file that Save wrote.
func Load(r io.Reader) (*Data, error) {
	limited := &io.LimitedReader{R: r, N: maxData + 1}
	text, err := io.ReadAll(limited)
	if err != nil {
		return nil, fmt.Errorf("reading the report's data: %w", err)
	}
	if limited.N == 0 {
		return nil, inputError("a file of more than %d bytes", maxData)
	}
	var d Data
	if err := json.Unmarshal(text, &d); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, inputError("not a JSON object, at byte %d: %w", syntax.Offset, err)
		}
		return nil, inputError("%w", err)
	}
	if d.Format != dataFormat {
		return nil, inputError("format %q; want %q", d.Format, dataFormat)
	}
	if _, err := d.Page(); err != nil {
		return nil, err
	}
	return &d, nil
}

// Page returns the page of the data.
func (d *Data) Page() (*Page, error) {
	g, err := topology.Parse(d.Topology)
	if err != nil {
		return nil, inputError("%w", err)
	}
	p := &Page{Title: d.Title, Command: d.Command, Notes: d.Notes, Op: d.Op, Bytes: d.Bytes, Graph: g, Runs: d.Runs}
	if err := p.check(); err != nil {
		return nil, err
	}
	return p, nil
}

// Merge puts the runs of several files on one page, in order. They must have the same operation
// and network; otherwise colours and ratios would mean nothing.
func Merge(all ...*Data) (*Data, error) {
	if len(all) == 0 {
		return nil, inputError("no runs")
	}
	m := *all[0]
	m.Runs = slices.Clone(m.Runs)
	first, err := all[0].Page()
	if err != nil {
		return nil, err
	}
	for _, d := range all[1:] {
		p, err := d.Page()
		if err != nil {
			return nil, err
		}
		if p.Graph.Name != first.Graph.Name || d.Op != m.Op || d.Bytes != m.Bytes {
			return nil, inputError("%s of %d bytes on %s beside %s of %d bytes on %s: want runs of one operation on one network",
				d.Op, d.Bytes, p.Graph.Name, m.Op, m.Bytes, first.Graph.Name)
		}
		m.Runs = append(m.Runs, d.Runs...)
		if d.Command != m.Command {
			m.Command = joinLines(m.Command, d.Command)
		}
	}
	return &m, nil
}

func joinLines(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n" + b
}
