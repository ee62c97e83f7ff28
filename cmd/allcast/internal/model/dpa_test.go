package model

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/testenv"
)

func TestDPAJSON(t *testing.T) {
	lines := command("model dpa --threads 1,8 --chunk 1K,4K --buffer 1M --queue 4 --link 100gbit --json").Objects(t)
	if len(lines) != 4 {
		t.Fatalf("%d lines, want one for each combination", len(lines))
	}
	for i, l := range lines {
		if l["model"] != "dpa" || l["transport"] != "ud" || l["threads"] != []float64{1, 8}[i%2] ||
			l["chunk"] != []float64{1024, 4096}[i/2] || l["link_bps"] != 100e9 {
			t.Errorf("line %d: %v", i, l)
		}
		if l["arrived"].(float64) != l["processed"].(float64)+l["dropped"].(float64) {
			t.Errorf("line %d: chunks went missing: %v", i, l)
		}
		for _, field := range []string{
			"throughput_gibps", "chunks_per_s", "issue_utilisation", "dropped_share",
			"cycles_per_chunk",
		} {
			if _, ok := l[field].(float64); !ok {
				t.Errorf("line %d has no %s: %v", i, field, l)
			}
		}
	}
}

func TestDPATable(t *testing.T) {
	if testenv.Race {
		t.Skip("a hundred runs of the model: the test of docs/dpa.md has them, without the race detector")
	}
	o := command("model dpa --table")
	for _, want := range []string{
		"full throughput, UC          4               4                   hit  2             miss",
		"full throughput, UD          8 to 16         8                   hit  8             hit",
		"48.8 M chunks/s of 64 B, UD  128 are enough  64                  hit  64            hit   128",
		"# Figure 15",
	} {
		if !strings.Contains(o.Stdout, want) {
			t.Errorf("status %d, no %q in:\n%s", o.Status, want, o.Stdout)
		}
	}
}

// How comparisons are printed, with one that costs nothing.
func TestDPAComparison(t *testing.T) {
	tables := []*dpa.Table{{
		Title: "Figure 99", Notes: []string{"a note"}, Columns: []string{"threads", "paper"},
		Rows: [][]string{{"1", "11.9"}, {"2", ""}},
	}}
	for json, wants := range map[bool][]string{
		false: {"# Figure 99\n#   a note\nthreads  paper\n1        11.9\n2        \n\n# Parameters", "fitted on Fig 16"},
		true: {
			`{"model":"dpa","table":"Figure 99","notes":["a note"],"columns":["threads","paper"],` +
				`"rows":[["1","11.9"],["2",""]],"schema":1}`,
			`"parameters":[{"name":`,
		},
	} {
		var out strings.Builder
		if err := printComparison(&cli.Env{Stdout: &out, JSON: json}, tables); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in:\n%s", want, out.String())
			}
		}
	}
}
