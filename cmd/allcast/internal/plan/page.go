package plan

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/allcast/allcast/internal/figure"
	"github.com/allcast/allcast/internal/plan"
)

// pageText is a single file without references to others, so that the page can be opened anywhere.
//
//go:embed plan.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("plan").Parse(pageText))

type page struct {
	Title, Network, Model string
	Advice, Notes         []string
	Plots                 []template.HTML
	Tables                []table
}

// writePage writes the page.
func writePage(w io.Writer, p *plan.Plan) error {
	d := page{
		Title:   fmt.Sprintf("What %s gains from multicast", p.Network.Topology),
		Network: networkWords(p), Model: modelWords(p), Advice: p.Advice, Notes: p.Notes, Tables: tables(p),
	}
	for _, f := range p.Figures() {
		var svg bytes.Buffer
		if err := figure.Draw(&svg, &f); err != nil {
			return fmt.Errorf("drawing the page: %w", err)
		}
		d.Plots = append(d.Plots, template.HTML(svg.String())) //nolint:gosec // drawn by us, from numbers and escaped names
	}
	if err := pageTemplate.Execute(w, d); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
