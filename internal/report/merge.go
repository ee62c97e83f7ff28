package report

import (
	"slices"
	"strings"
)

// Merge puts the runs of several pages on one, in order. They must have the same operation and
// network; otherwise colours and ratios would mean nothing.
func Merge(pages ...*Page) (*Page, error) {
	if len(pages) == 0 {
		return nil, inputError("no runs")
	}
	m := *pages[0]
	m.Runs = slices.Clone(m.Runs)
	for _, p := range pages[1:] {
		if p.Graph.Name != m.Graph.Name || p.Op != m.Op || p.Bytes != m.Bytes {
			return nil, inputError("%s of %d bytes on %s beside %s of %d bytes on %s: want runs of one operation on one network",
				p.Op, p.Bytes, p.Graph.Name, m.Op, m.Bytes, m.Graph.Name)
		}
		m.Runs = append(m.Runs, p.Runs...)
		if p.Command != m.Command {
			m.Command = strings.Trim(m.Command+"\n"+p.Command, "\n")
		}
	}
	return &m, m.check()
}
