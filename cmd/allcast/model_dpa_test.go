package main

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/model/dpa"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/testenv"
)

func TestModelDPA(t *testing.T) {
	o := execute(t, fine, fields("model dpa --transport ud,uc --threads 1,16")...)
	if o.status != statusOK {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	for _, want := range []string{
		"link 200gbit, receive queues of 8192, memory port 0 cycles",
		"         ud        1     4K      8M   5.20    22.3%     1.36M   8.6%   0.0%     0.0%    1084   234\n",
		"         uc        1     4K      8M  11.44    49.1%     3.00M  11.0%   0.0%     0.0%     598     0\n",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, o.stdout)
		}
	}
}

func TestModelDPAJSON(t *testing.T) {
	lines := execute(t, fine, fields("model dpa --threads 1,8 --chunk 1K,4K --buffer 1M --queue 4 --link 100gbit --json")...).objects(t)
	if len(lines) != 4 {
		t.Fatalf("%d lines, want one for each combination", len(lines))
	}
	for i, l := range lines {
		if l["model"] != "dpa" || l["transport"] != "ud" || l["threads"] != []float64{1, 8}[i%2] || l["chunk"] != []float64{1024, 4096}[i/2] || l["link_bps"] != 100e9 {
			t.Errorf("line %d: %v", i, l)
		}
		if l["arrived"].(float64) != l["processed"].(float64)+l["dropped"].(float64) {
			t.Errorf("line %d: chunks went missing: %v", i, l)
		}
		for _, field := range []string{"throughput_gibps", "chunks_per_s", "issue_utilisation", "dropped_share", "cycles_per_chunk"} {
			if _, ok := l[field].(float64); !ok {
				t.Errorf("line %d has no %s: %v", i, field, l)
			}
		}
	}
}

func TestModelDPATable(t *testing.T) {
	if testenv.Race {
		t.Skip("a hundred runs of the model: the test of docs/dpa.md has them, without the race detector")
	}
	o := execute(t, fine, fields("model dpa --table")...)
	for _, want := range []string{
		"97 % of 200 Gbit/s, UC       4        2      miss",
		"97 % of 200 Gbit/s, UD       8 to 16  8      hit",
		"48.8 M chunks/s of 64 B, UD  128      64     miss  128        by the fit  64",
		"# Figure 15",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("status %d, no %q in:\n%s", o.status, want, o.stdout)
		}
	}
}

// How comparisons are printed, with one that costs nothing.
func TestModelDPAComparison(t *testing.T) {
	tables := []*dpa.Table{{Title: "Figure 99", Notes: []string{"a note"}, Columns: []string{"threads", "paper"}, Rows: [][]string{{"1", "11.9"}, {"2", ""}}}}
	for json, wants := range map[bool][]string{
		false: {"# Figure 99\n#   a note\nthreads  paper\n1        11.9\n2        \n\n# Parameters", "fitted on Fig 16"},
		true:  {`{"model":"dpa","table":"Figure 99","notes":["a note"],"columns":["threads","paper"],"rows":[["1","11.9"],["2",""]]}`, `"parameters":[{"name":`},
	} {
		var out strings.Builder
		if err := (&app{stdout: &out, json: json}).printComparison(tables); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in:\n%s", want, out.String())
			}
		}
	}
}

func TestModelDPAUsage(t *testing.T) {
	for args, want := range map[string]string{
		"--transport rc":              "valid: ud, uc",
		"--threads 0":                 "want 1 to 256",
		"--threads 257":               "want 1 to 256",
		"--threads two":               "--threads",
		"--chunk 8K":                  "with ud, want 1 to 4096",
		"--chunk 64 --buffer 1G":      "chunks at most",
		"--buffer 0":                  "want 1 or more",
		"--link fast":                 "want a positive number",
		"--queue 0":                   "--queue 0: want 1 or more",
		"--port=-1":                   "want 0 to 10000",
		"--cores 4":                   "valid: --help",
		"now":                         "takes flags only",
		"--threads " + commas(1, 600): "want 1 to 512",
	} {
		o := execute(t, fine, append([]string{"model", "dpa"}, fields(args)...)...)
		if o.status != statusUsage || !strings.Contains(o.stderr, want) || o.stdout != "" {
			t.Errorf("allcast model dpa %s: status %d, %q; want %q", args, o.status, o.stderr, want)
		}
	}
}

func commas(n, times int) string {
	return strings.TrimSuffix(strings.Repeat(string(rune('0'+n))+",", times), ",")
}

func TestSimDatapath(t *testing.T) {
	o := execute(t, fine, fields("sim broadcast --topology star:3 --datapath dpa:ud,threads=4")...)
	if o.status != statusOK || len(o.configs) != 1 || o.configs[0].Datapath != "dpa:ud,threads=4" {
		t.Errorf("status %d, %+v: %s", o.status, o.configs, o.stderr)
	}
	for args, want := range map[string]string{
		"--datapath cpu":                    "valid: dpa:ud",
		"--datapath dpa:ud,threads=0":       "threads: want 1 to 256",
		"--datapath dpa:ud --chunk 8K":      "want 1 to 4K",
		"--datapath dpa:ud --recv-cost 1us": "--recv-cost is for --datapath ideal",
		"--datapath dpa:ud --recv-queue 1M": "queue=ENTRIES",
	} {
		o := execute(t, fine, append([]string{"sim", "broadcast", "--topology", "star:3"}, fields(args)...)...)
		if o.status != statusUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %q; want %q", args, o.status, o.stderr, want)
		}
	}
}

// The whole way: a slow accelerator in the simulator, its name in the JSON.
func TestSimDatapathJSON(t *testing.T) {
	l := execute(t, sim.Run, fields("sim allgather --topology star:3 --bytes 1M --rate 200gbit --datapath dpa:ud,threads=1,queue=32 --json")...).objects(t)[0]
	if l["datapath"] != "dpa:ud,threads=1,queue=32" || l["verified"] != true || l["dropped_chunks"].(float64) == 0 || l["repaired_chunks"].(float64) == 0 {
		t.Errorf("%v", l)
	}
}
