//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

func parsed(t *testing.T, args ...string) *oversubscribed {
	t.Helper()
	b, err := parseOversubscribed(args)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOversubscribedFlags(t *testing.T) {
	b := parsed(t, "-networks", "fat-tree:16,4,2", "-only", "multicast,open-mpi-best")
	if !slices.Equal(b.only, []string{multicastColumn, bestColumn}) || b.selects(ringColumn) {
		t.Errorf("%v", b.only)
	}
	want := "`fat-tree:16,4,2`: 16 hosts, 4 per leaf, 2 uplinks at 0.5 times the host rate"
	if got := b.describe(b.networks[0]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for want, args := range map[string]string{
		"unknown part": "-parts all", "unknown column": "-only bruck", "unknown kind": "-networks ring:3",
		"want 1 or more": "-rounds 0", "unknown argument": "extra", "want 1 to": "-oversubscribe 0.5",
	} {
		if _, err := parseOversubscribed(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// A median below what the page promises is an error.
func TestOversubscribedVerdict(t *testing.T) {
	b := parsed(t, "-networks", "fat-tree:16,4,1")
	at := cell{"fat-tree:16,4,1", true, multicastColumn}
	b.shares = map[cell][]float64{at: {0.5, 0.96, 0.97}}
	b.fsdp = []pairSample{{100, 310}, {100, 320}, {100, 100}}
	if err := b.verdict(); err != nil {
		t.Error(err)
	}
	if got := percent(b.shares[at]); got != "96 (50-97) %" {
		t.Error(got)
	}
	b.shares[at] = []float64{0.5, 0.94, 0.97}
	b.fsdp[0].rings = 290
	b.gaps = []string{"one"}
	err := b.verdict()
	for _, want := range []string{"median of 94.0 %", "2.9 times", "1 measurements failed"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// One byte too many on one link is a disagreement for multicast, and on a tier beyond the tolerance for a ring.
func TestAgreement(t *testing.T) {
	g, err := topology.Parse("fat-tree:4,2,1")
	if err != nil {
		t.Fatal(err)
	}
	a := &agreement{graph: g, algo: "mcast", labShare: 0.95, simShare: 0.9, modeled: 1}
	for range g.Links {
		a.payload, a.simulated, a.counted = append(a.payload, 1000), append(a.simulated, 1000), append(a.counted, 1000)
	}
	if err := a.check(); err != nil {
		t.Error(err)
	}
	a.payload[5]++
	if err := a.check(); err == nil || !strings.Contains(err.Error(), "1001.0 bytes from") {
		t.Errorf("one byte more: %v", err)
	}
	a.algo = "ring"
	if err := a.check(); err != nil {
		t.Error(err)
	}
	a.payload[5] += 50
	if err := a.check(); err == nil || !strings.Contains(err.Error(), "on tier host_down") {
		t.Errorf("5 %% more on a link: %v", err)
	}
	a.payload[5], a.simShare = 1000, 0.84
	if err := a.check(); err == nil || !strings.Contains(err.Error(), "84.0 % in the simulator") {
		t.Errorf("another share: %v", err)
	}
}
