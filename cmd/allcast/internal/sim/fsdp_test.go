package sim

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

const smallStep = "sim fsdp --topology star:4 --layers 3 --layer-bytes 100001 --compute 10us --chunk 4K "

func TestFSDPJSON(t *testing.T) {
	o := execute(fine, strings.Fields(smallStep+
		"--json --prefetch 2 --seed 7 --algo ring+ring,mcast+inc,mcast+ring,ring+inc")...)
	lines := o.Objects(t)
	if o.Status != cli.StatusOK || o.Stderr != "" || len(lines) != 4 {
		t.Fatalf("status %d, %d lines, stderr %q", o.Status, len(lines), o.Stderr)
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
		for _, name := range []string{
			"step_us", "bubble_pct", "allgather_us", "reduce_scatter_us", "sent_bytes", "events",
			"wall_ms", "speedup",
		} {
			if n, ok := l[name].(float64); !ok || n <= 0 {
				t.Errorf("%s: %s is %v", algo, name, l[name])
			}
		}
		if spans, ok := l["timeline"].([]any); !ok || len(spans) != 14 {
			t.Errorf("%s: timeline of %d spans, want 14", algo, len(spans))
		}
	}
}

func TestFSDPTable(t *testing.T) {
	o := execute(fine, strings.Fields(smallStep)...)
	if o.Status != cli.StatusOK || o.Stderr != "" {
		t.Fatalf("status %d, stderr %q", o.Status, o.Stderr)
	}
	if !regexp.MustCompile(`(?m)^algo +ring\+ring +mcast\+ring +mcast\+inc`).MatchString(o.Stdout) ||
		!regexp.MustCompile(`(?m)^verified +yes +yes +yes`).MatchString(o.Stdout) {
		t.Errorf("table:\n%s", o.Stdout)
	}
}

// The page is self-contained: it loads nothing and has no links.
func TestFSDPPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "step.html")
	o := execute(fine, strings.Fields(smallStep+"--html "+path)...)
	if o.Status != cli.StatusOK {
		t.Fatalf("status %d: %s", o.Status, o.Stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	if m := regexp.MustCompile(`(?i)https?:|//|src=|href|url\(|@import|<script|<link|<iframe`).FindString(page); m != "" {
		t.Errorf("the page has %q", m)
	}
	for _, want := range []string{
		"<!DOCTYPE html>", "prefers-color-scheme: dark", "ring+ring", "mcast+ring", "mcast+inc", "</html>",
	} {
		if !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if n := strings.Count(page, "<title>") - 1; n != 3*14 {
		t.Errorf("%d spans in the picture, want 42", n)
	}
	if strings.Contains(page, "NaN") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page has a value that could not be written")
	}
}

func TestFSDPUsage(t *testing.T) {
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
		{star + "--loss 1%", "--prefetch"}, // the network of a step has no faults
	} {
		o := execute(fine, strings.Fields(c.args)...)
		if o.Status != cli.StatusUsage || o.Stdout != "" || !strings.Contains(o.Stderr, c.want) {
			t.Errorf("allcast %s: status %d, stdout %q, the message\n%s does not say %q", c.args, o.Status, o.Stdout, o.Stderr,
				c.want)
		}
	}
}

func TestFSDPHelp(t *testing.T) {
	o := execute(fine, "sim", "fsdp", "--help")
	if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "    allcast sim fsdp") ||
		!strings.Contains(o.Stdout, "scale model") {
		t.Errorf("status %d:\n%s", o.Status, o.Stdout)
	}
}

// The status follows the rules for single collectives.
func TestFSDPVerdict(t *testing.T) {
	good := sim.FSDPResult{
		Subject: sim.Subject{Op: "fsdp", Algo: "ring+ring", Nodes: 4}, Verdict: sim.Verdict{Verified: true},
	}
	wrong, lost, broken := good, good, good
	wrong.Verified, wrong.Wrong = false, 2
	lost.Verified, lost.Errors = false, []sim.RankError{{Rank: 1, Culprit: -1, Reason: "the step never ended"}}
	broken.Verified, broken.Violation = false, "a buffer was written"
	for _, c := range []struct {
		results []*sim.FSDPResult
		want    error
	}{
		{[]*sim.FSDPResult{&good, &good}, nil},
		{[]*sim.FSDPResult{&good, &wrong}, cli.StatusError(cli.StatusWrong)},
		{[]*sim.FSDPResult{&lost, &good}, cli.StatusError(cli.StatusFailed)},
		{[]*sim.FSDPResult{&lost, &broken}, cli.StatusError(cli.StatusWrong)},
	} {
		if got := stepVerdict(&cli.Env{Stderr: io.Discard}, c.results); got != c.want {
			t.Errorf("%v, want %v, for %+v", got, c.want, c.results[len(c.results)-1])
		}
	}
}
