package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/sim"
)

const smallStep = "sim fsdp --topology star:4 --layers 3 --layer-bytes 100001 --compute 10us --chunk 4K "

func TestSimFSDPJSON(t *testing.T) {
	o := execute(t, fine, fields(smallStep+"--json --prefetch 2 --seed 7 --algo ring+ring,mcast+inc,mcast+ring,ring+inc")...)
	lines := o.objects(t)
	if o.status != statusOK || o.stderr != "" || len(lines) != 4 {
		t.Fatalf("status %d, %d lines, stderr %q", o.status, len(lines), o.stderr)
	}
	for i, algo := range []string{"ring+ring", "mcast+inc", "mcast+ring", "ring+inc"} {
		l := lines[i]
		for name, want := range map[string]any{
			"op": "fsdp", "algo": algo, "nodes": 4.0, "topology": "star:4", "layers": 3.0, "layer_bytes": 100001.0,
			"prefetch": 2.0, "chunk": 4096.0, "compute_us": 90.0, "verified": true, "seed": 7.0,
		} {
			if l[name] != want {
				t.Errorf("%s: %s is %v, want %v", algo, name, l[name], want)
			}
		}
		for _, name := range []string{"step_us", "bubble_pct", "allgather_us", "reduce_scatter_us", "sent_bytes", "events", "wall_ms", "speedup"} {
			if n, ok := l[name].(float64); !ok || n <= 0 {
				t.Errorf("%s: %s is %v", algo, name, l[name])
			}
		}
		if spans, ok := l["timeline"].([]any); !ok || len(spans) != 14 {
			t.Errorf("%s: timeline of %d spans, want 14", algo, len(spans))
		}
	}
}

func TestSimFSDPTable(t *testing.T) {
	o := execute(t, fine, fields(smallStep)...)
	if o.status != statusOK || o.stderr != "" {
		t.Fatalf("status %d, stderr %q", o.status, o.stderr)
	}
	if !regexp.MustCompile(`(?m)^algo +ring\+ring +mcast\+inc`).MatchString(o.stdout) || !regexp.MustCompile(`(?m)^verified +yes +yes`).MatchString(o.stdout) {
		t.Errorf("table:\n%s", o.stdout)
	}
}

// The page is whole in itself: it loads nothing and points nowhere.
func TestSimFSDPPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "step.html")
	o := execute(t, fine, fields(smallStep+"--html "+path)...)
	if o.status != statusOK {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	if m := regexp.MustCompile(`(?i)https?:|//|src=|href|url\(|@import|<script|<link|<iframe`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
	for _, want := range []string{"<!DOCTYPE html>", "prefers-color-scheme: dark", "ring+ring", "mcast+inc", "</html>"} {
		if !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(page, "<title>") - 1; n != 2*14 {
		t.Errorf("%d spans in the picture, want 28", n)
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page has a value that could not be written")
	}
}

func TestSimFSDPUsage(t *testing.T) {
	const star = "sim fsdp --topology star:4 "
	for _, c := range []struct{ args, want string }{
		{"sim fsdp", "star:HOSTS"},
		{"sim fsdp --topology ring:8", "fat-tree3:HOSTS,RADIX"},
		{star + "--algo mcast", "mcast+inc, ring+ring, mcast+ring, ring+inc"},
		{star + "--algo=", "mcast+inc, ring+ring, mcast+ring, ring+inc"},
		{star + "--layers 0", "1 or more"},
		{star + "--layers 10001", "1 to 10000"},
		{star + "--layer-bytes 0", "1 or more"},
		{star + "--layer-bytes 2048G", "must be 1 to"},
		{star + "--prefetch -1", "0 or more"},
		{star + "--compute -1ms", "0s to 1h"},
		{star + "--compute 1h", "can be simulated"},
		{star + "--latency 2h", "0s to 1h"},
		{star + "--rate 0gbit", "1gbit"},
		{star + "--chunk 0", "1 to 16M"},
		{star + "--chunk 17M", "1 to 16M"},
		{star + "--html /no/such/directory/x.html", "no such file"},
		{star + "--loss 1%", "--prefetch"}, // the network of a step is without faults
	} {
		o := execute(t, fine, fields(c.args)...)
		if o.status != statusUsage || o.stdout != "" || !strings.Contains(o.stderr, c.want) {
			t.Errorf("allcast %s: status %d, stdout %q, the message\n%s does not say %q", c.args, o.status, o.stdout, o.stderr, c.want)
		}
	}
}

func TestSimFSDPHelp(t *testing.T) {
	o := execute(t, fine, "sim", "fsdp", "--help")
	if o.status != statusOK || !strings.Contains(o.stdout, "    allcast sim fsdp") || !strings.Contains(o.stdout, "scale model") {
		t.Errorf("status %d:\n%s", o.status, o.stdout)
	}
}

// What went wrong decides the status, as for single collectives.
func TestSimFSDPVerdict(t *testing.T) {
	good := sim.FSDPResult{Op: "fsdp", Algo: "ring+ring", Nodes: 4, Verified: true}
	wrong, lost, broken := good, good, good
	wrong.Verified, wrong.Wrong = false, 2
	lost.Verified, lost.Errors = false, []sim.RankError{{Rank: 1, Culprit: -1, Reason: "the step never ended"}}
	broken.Verified, broken.Violation = false, "a buffer was written"
	for _, c := range []struct {
		results []*sim.FSDPResult
		want    int
	}{
		{[]*sim.FSDPResult{&good, &good}, statusOK},
		{[]*sim.FSDPResult{&good, &wrong}, statusWrong},
		{[]*sim.FSDPResult{&lost, &good}, statusFailed},
		{[]*sim.FSDPResult{&lost, &broken}, statusWrong},
	} {
		a := &app{stderr: &strings.Builder{}}
		if got := a.fail(a.stepVerdict(c.results)); got != c.want {
			t.Errorf("status %d, want %d, for %+v", got, c.want, c.results[len(c.results)-1])
		}
	}
}
