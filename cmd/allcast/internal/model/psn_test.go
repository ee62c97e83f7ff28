package model

import (
	"testing"
)

func TestPSNJSON(t *testing.T) {
	lines := command("model psn --chunk 8K --llc 64K --json").Objects(t)
	if len(lines) != 26 {
		t.Fatalf("%d lines, want 25 points and the footprint", len(lines))
	}
	for i, l := range lines[:25] {
		if l["kind"] != "psn" || l["psn_bits"] != float64(8+i) || l["fits_llc"] != (i <= 11) {
			t.Errorf("line %d: %v", i, l)
		}
	}
	last := lines[25]
	if last["kind"] != "footprint" || last["staging_max_bytes"] != 64.0*(1<<20) || last["reliable_connections"] != 2.0 {
		t.Errorf("the footprint: %v", last)
	}
}
