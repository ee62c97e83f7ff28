package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/sim"
)

func TestDemo(t *testing.T) {
	o := execute(t, fine, "demo")
	if o.status != statusOK || len(o.configs) != 4 {
		t.Fatalf("status %d, %d simulations, want 0 and 4: %s", o.status, len(o.configs), o.stderr)
	}
	for i, want := range []struct {
		op   string
		loss float64
	}{{"broadcast", 0}, {"broadcast", 0.01}, {"allgather", 0}, {"allgather", 0.01}} {
		got := o.configs[i]
		if got.Op != want.op || got.Loss != want.loss || got.Bytes != 1<<20 || got.Topology.Name != "fat-tree:16,4,2" {
			t.Errorf("run %d is %s of %d bytes with loss %g on %s, want %+v", i, got.Op, got.Bytes, got.Loss, got.Topology.Name, want)
		}
	}
	for _, want := range []string{"Simulated", "what one rank sends", "15.00 (ring)", "4.00 (binomial)", "yes"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, o.stdout)
		}
	}
}

func TestDemoJSON(t *testing.T) {
	o := execute(t, fine, fields("demo --ranks 5 --json")...)
	lines := o.objects(t)
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4", len(lines))
	}
	for _, l := range lines {
		if l["simulated"] != true || l["nodes"] != 5.0 || l["verified"] != true {
			t.Errorf("%v", l)
		}
	}
	if lines[0]["p2p_sent_bytes"] != 3.0*(1<<20) || lines[3]["p2p_sent_bytes"] != 4.0*(1<<20) {
		t.Errorf("without multicast %v and %v bytes, want 3M and 4M", lines[0]["p2p_sent_bytes"], lines[3]["p2p_sent_bytes"])
	}
}

// The network must exist for any number of ranks, also one that fills no leaf.
func TestDemoRanks(t *testing.T) {
	for _, ranks := range []int{2, 3, 4, 5, 7, 8, 9, 15, 17, 100, 255, demoMaxRanks} {
		args := append(fields("demo --json --ranks"), strconv.Itoa(ranks))
		if o := execute(t, fine, args...); o.status != statusOK || o.configs[0].Topology.Hosts != ranks {
			t.Errorf("%d ranks: status %d: %s", ranks, o.status, o.stderr)
		}
	}
}

func TestDemoWrong(t *testing.T) {
	o := execute(t, func(cfg sim.Config) (*sim.Result, error) {
		r, err := fine(cfg)
		r.Verified = cfg.Op != "allgather" || cfg.Loss == 0
		return r, err
	}, "demo")
	if o.status != statusWrong {
		t.Errorf("status %d, want %d", o.status, statusWrong)
	}
}
