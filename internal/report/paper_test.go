package report

import (
	"strings"
	"testing"
)

func TestPaperBesideOurs(t *testing.T) {
	p := somePage(t, paperNetwork)
	for l := range p.Graph.Links { // 10 per link, 20 per link between switches
		p.Runs[0].LinkBytes[l], p.Runs[1].LinkBytes[l] = 10, 10
		if !p.Graph.IsHost(p.Graph.Links[l].From) && !p.Graph.IsHost(p.Graph.Links[l].To) {
			p.Runs[1].LinkBytes[l] = 20
		}
	}
	p.Runs[0].PayloadLinkBytes = 0
	table := tableOf(t, render(t, p), "paper")
	// 376 link directions to hosts and 144 between switches: (376+288)/520, (376+576)/(376+288).
	for _, want := range []string{"1.5× to 2× less traffic", "<td>1.28×</td>", "<td>1.43×</td>"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestPaperOnlyWhereItCompares(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Page)
		want bool
	}{
		{"unchanged", func(*Page) {}, true},
		{"broadcast", func(p *Page) { p.Op = "broadcast" }, true},
		{"another operation", func(p *Page) { p.Op = "allreduce" }, false},
		{"no multicast", func(p *Page) { p.Runs[0].Multicast = false }, false},
		{"only multicast", func(p *Page) { p.Runs = p.Runs[:1] }, false},
		{"another network", func(p *Page) { *p = *somePage(t, "fat-tree:188,12,5") }, false},
	} {
		p := somePage(t, paperNetwork)
		c.edit(p)
		if got := strings.Contains(render(t, p), "Beside the paper"); got != c.want {
			t.Errorf("%s: the page shows the paper's numbers: %v, want %v", c.name, got, c.want)
		}
	}
	p := somePage(t, paperNetwork)
	p.Bytes = 1 << 20
	if !strings.Contains(render(t, p), "Here a rank sends 1 048 576 bytes") {
		t.Error("the page does not point out that the paper used another size")
	}
}
