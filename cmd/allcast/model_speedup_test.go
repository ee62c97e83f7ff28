package main

import (
	"io"
	"math"
	"strings"
	"testing"
)

func TestModelSpeedup(t *testing.T) {
	o := execute(t, fine, "model", "speedup")
	if o.status != statusOK {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	for _, want := range []string{
		"  ranks        algo  send  recv  ag_send  ag_recv  rs_send  rs_recv  time  speedup\n",
		"      2   mcast+inc     2     2   0.5000   0.5000   0.5000   0.5000     2   1.0000\n",
		"      4   ring+ring     6     6   0.5000   0.5000   0.5000   0.5000     6   1.0000\n",
		"      4   mcast+inc     4     4   0.2500   0.7500   0.7500   0.2500     4   1.5000\n",
		"    188  mcast+ring   188   374   0.0053   0.5000   0.9947   0.5000   374   1.0000\n",
		"    188    ring+inc   374   188   0.5000   0.9947   0.5000   0.0053   374   1.0000\n",
		"   1024   mcast+inc  1024  1024   0.0010   0.9990   0.9990   0.0010  1024   1.9980\n",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, o.stdout)
		}
	}
}

func TestModelSpeedupJSON(t *testing.T) {
	pairs := []string{"ring+ring", "mcast+ring", "ring+inc", "mcast+inc"}
	lines := execute(t, fine, fields("model speedup --ranks 4,188 --json")...).objects(t)
	if len(lines) != 2*len(pairs) {
		t.Fatalf("%d lines, want one for each number of ranks and pair", len(lines))
	}
	for i, l := range lines {
		p, algo := []float64{4, 188}[i/len(pairs)], pairs[i%len(pairs)]
		want := 1.0
		if algo == "mcast+inc" {
			want = 2 - 2/p
		}
		if got := l["speedup"].(float64); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s on %v ranks: speed-up %v, want %v", algo, p, got, want)
		}
		if l["model"] != "speedup" || l["op"] != "allgather+reduce-scatter" || l["ranks"] != p || l["algo"] != algo {
			t.Errorf("line %d: %v, want %s on %v ranks", i, l, algo, p)
		}
	}
	mc := lines[3]
	for field, want := range map[string]float64{
		"ag_send_share": 0.25, "ag_recv_share": 0.75, "rs_send_share": 0.75, "rs_recv_share": 0.25,
		"ag_send_n": 1, "ag_recv_n": 3, "rs_send_n": 3, "rs_recv_n": 1, "send_n": 4, "recv_n": 4, "time_n": 4,
	} {
		if mc[field] != want {
			t.Errorf("mcast+inc on 4 ranks: %s is %v, want %v", field, mc[field], want)
		}
	}
}

func TestModelSpeedupUsage(t *testing.T) {
	checkUsage(t, []usageCase{
		{"model speedup --ranks 1", "2 to 1048576"},
		{"model speedup --ranks 4,0", "2 to 1048576"},
		{"model speedup --ranks=-3", "2 to 1048576"},
		{"model speedup --ranks 1048577", "2 to 1048576"},
		{"model speedup --ranks=", "2 to 1048576"},
		{"model speedup --ranks x", "int"},
		{"model speedup --ranks 4,,8", "int"},
		{"model speedup --pairs mcast+inc", "--ranks"},
		{"model speedup 4", "takes flags only"},
	})
}

// As TestHelpHasExamples and TestResultsThatCannotBeWritten have it for the others.
func TestModelHelpAndClosedPipes(t *testing.T) {
	for _, args := range []string{"model traffic --topology star:8", "model speedup"} {
		command := strings.Join(fields(args)[:2], " ")
		o := execute(t, fine, fields(command+" --help")...)
		if o.status != statusOK || o.stderr != "" || !strings.Contains(o.stdout, "    allcast "+command+" --") {
			t.Errorf("allcast %s --help: status %d, no example:\n%s%s", command, o.status, o.stdout, o.stderr)
		}
		for _, args := range []string{args, args + " --json"} {
			r, w := io.Pipe()
			_ = r.Close()
			a := &app{stdout: w, stderr: io.Discard, simulate: fine}
			if status := a.run(fields(args)); status != statusFailed {
				t.Errorf("allcast %s to a closed pipe: status %d, want %d", args, status, statusFailed)
			}
		}
	}
}
