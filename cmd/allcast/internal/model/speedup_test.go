package model

import (
	"math"
	"testing"
)

func TestSpeedupJSON(t *testing.T) {
	pairs := []string{"ring+ring", "mcast+ring", "ring+inc", "mcast+inc"}
	lines := command("model speedup --ranks 4,188 --json").Objects(t)
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
