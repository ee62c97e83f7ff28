package main

import (
	"strings"
	"testing"
)

func TestModelPSN(t *testing.T) {
	o := execute(t, fine, "model", "psn")
	if o.status != statusOK {
		t.Fatalf("status %d: %s", o.status, o.stderr)
	}
	for _, want := range []string{
		"chunks of 4K, a cache of 1536K",
		"        19     64K           2G      8192       yes             19",
		"        24      2M          64G       256        no              0",
		"staging at most                                  32M     32M",
		"buffer that a cache full of bitmap addresses     48G     ~50 GB",
		"buffer that a bitmap of 64K addresses            2G      16 GB (a slip)",
	} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the table does not say %q:\n%s", want, o.stdout)
		}
	}
}

func TestModelPSNJSON(t *testing.T) {
	lines := execute(t, fine, fields("model psn --chunk 8K --llc 64K --json")...).objects(t)
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
