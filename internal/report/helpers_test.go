package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

func parse(t *testing.T, spec string) *topology.Graph {
	t.Helper()
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// someRuns returns two runs with bytes of all magnitudes, including 0.
func someRuns(g *topology.Graph) []Run {
	runs := []Run{
		{Name: "mcast", Multicast: true, Verified: true},
		{Name: "ring <b>&\"", Verified: true, Repaired: 12345, TimeUS: 1234.5},
	}
	for i := range runs {
		for l := range g.Links {
			runs[i].LinkBytes = append(runs[i].LinkBytes, uint64(l*l*(i+1)*977))
		}
	}
	runs[0].PayloadLinkBytes = runs[0].total() / 2
	runs[0].Bound = runs[0].total() / 3
	return runs
}

func somePage(t *testing.T, spec string) *Page {
	t.Helper()
	g := parse(t, spec)
	return &Page{
		Title: "A title <&>", Command: "allcast sim", Notes: "Notes.", Op: "allgather", Bytes: paperBytes,
		Graph: g, Runs: someRuns(g),
	}
}

func render(t *testing.T, p *Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// tableOf returns the table with the given id.
func tableOf(t *testing.T, page, id string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page, `<table id="`+id+`">`)
	if !ok {
		t.Fatalf("the page has no table %q", id)
	}
	table, _, _ := strings.Cut(rest, "</table>")
	return table
}
