package report

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/allcast/allcast/internal/topology"
)

// ErrInput marks invalid input of a report.
var ErrInput = errors.New("bad report")

func inputError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrInput, fmt.Errorf(format, args...))
}

// Run is the traffic of one job on the links. A payload, bound or time of 0 means unknown.
type Run struct {
	Name      string   // usually the algorithm
	Multicast bool     // whether the paper's saving refers to this run
	LinkBytes []uint64 // by topology.LinkID

	PayloadLinkBytes uint64 // user data among all links' bytes
	Bound            uint64 // payload on all links of a minimal tree
	TimeUS           float64
	Repaired         uint64 // chunks repaired by the slow path
	Verified         bool
	Note             string
}

// Page is the input of a drawing. Other runs are compared to the first one.
type Page struct {
	Title   string
	Command string // command that reproduces it; may be empty
	Notes   string // a sentence or two under the title
	Op      string // "allgather"
	Bytes   uint64 // bytes that one rank sends
	Graph   *topology.Graph
	Runs    []Run
}

// Limits that keep a page small enough for a browser: it has one element per cable and run.
const (
	maxSwitchCables = 8192
	maxLeaves       = 1024
	maxRuns         = 16
)

// Drawable reports whether a network is small enough to be drawn, so that a command can refuse
// before it spends minutes on measurements.
func Drawable(g *topology.Graph) error {
	leaves, cables := g.Leaves(), len(g.Links)/2-g.Hosts
	if cables > maxSwitchCables || leaves > maxLeaves {
		return inputError("%s has %d leaves and %d cables between switches; a page shows at most %d and %d",
			g.Name, leaves, cables, maxLeaves, maxSwitchCables)
	}
	return nil
}

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("report").
	Funcs(template.FuncMap{"volume": volume, "grouped": grouped}).Parse(pageText))

// Write draws the page. On invalid input it writes nothing.
func (p *Page) Write(w io.Writer) error {
	if err := p.check(); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := pageTemplate.Execute(&page, p.view()); err != nil {
		return fmt.Errorf("drawing the page: %w", err)
	}
	if _, err := page.WriteTo(w); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

func (p *Page) check() error {
	if p.Graph == nil {
		return inputError("no network")
	}
	if err := Drawable(p.Graph); err != nil {
		return err
	}
	switch n := len(p.Runs); {
	case n == 0:
		return inputError("no runs")
	case n > maxRuns:
		return inputError("%d runs; a page shows at most %d", n, maxRuns)
	}
	for i := range p.Runs {
		if err := p.Runs[i].check(p.Graph); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) check(g *topology.Graph) error {
	switch {
	case r.Name == "":
		return inputError("a run has no name")
	case len(r.LinkBytes) != len(g.Links):
		return inputError("run %q has bytes for %d link directions; %s has %d",
			r.Name, len(r.LinkBytes), g.Name, len(g.Links))
	case math.IsNaN(r.TimeUS) || math.IsInf(r.TimeUS, 0) || r.TimeUS < 0:
		return inputError("run %q took %v us", r.Name, r.TimeUS)
	}
	var all uint64
	for _, n := range r.LinkBytes {
		// A cable between switches counts at both ends, so twice the sum must not overflow.
		sum, carry := bits.Add64(all, n, 0)
		if carry != 0 || sum > math.MaxUint64/2 {
			return inputError("run %q has more bytes on its links than can be counted", r.Name)
		}
		all = sum
	}
	if r.PayloadLinkBytes > all {
		return inputError("run %q has %d bytes of payload among %d on its links", r.Name, r.PayloadLinkBytes, all)
	}
	return nil
}

// total is the number of bytes on all link directions.
func (r *Run) total() (all uint64) {
	for _, n := range r.LinkBytes {
		all += n
	}
	return all
}

// busiest is the link direction with the most bytes, the first of several.
func (r *Run) busiest() topology.LinkID {
	return topology.LinkID(slices.Index(r.LinkBytes, slices.Max(r.LinkBytes)))
}

// linkName names the ends of a link direction.
func linkName(g *topology.Graph, l topology.LinkID) string {
	return g.NodeName(g.Links[l].From) + " → " + g.NodeName(g.Links[l].To)
}
