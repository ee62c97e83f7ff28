package perf

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

func TestProcesses(t *testing.T) {
	lines := clitest.JSON(t, "perf allgather --ranks 3 --algo mcast,ring -b 0 -e 4096 -f 64 -n 2 -w 1 --overlap --json")
	if len(lines) != 8 { // 0, 1, 64, 4096
		t.Fatalf("%d lines, want 8", len(lines))
	}
	for _, l := range lines {
		o, ok := l["overlap_pct"].(float64)
		if l["wrong"] != 0. || l["ranks"] != 3. || l["iters"] != 2. || !ok || o < 0 || o > 100 {
			t.Errorf("%v", l)
		}
	}
}

// The point of multicast: in a ring, every rank forwards the blocks of the others.
func TestInjects(t *testing.T) {
	lines := clitest.JSON(t, "perf allgather --ranks 8 --algo mcast,ring -b 1M -n 1 -w 1 -c 0 --json")
	mcast, ring := lines[0]["sent_bytes"].(float64), lines[1]["sent_bytes"].(float64)
	if ring < 6.5*mcast {
		t.Errorf("the busiest rank sent %.0f bytes with ring, %.0f with multicast: %.2f times as much, want 6.5", ring,
			mcast, ring/mcast)
	}
}

// Lost and duplicated datagrams are repaired and counted, and are not wrong data.
func TestFaults(t *testing.T) {
	l := clitest.JSON(t, "perf allgather --ranks 3 --algo mcast -b 256K -n 2 -w 0 --json",
		"ALLCAST_FAULT=drop=5%,dup=5%,seed=3")[0]
	for _, f := range []string{"repaired_bytes", "dropped_chunks", "duplicate_chunks", "chunks_total"} {
		if l[f].(float64) <= 0 {
			t.Errorf("%s is %v", f, l[f])
		}
	}
	if l["wrong"] != 0. {
		t.Errorf("%v bytes wrong", l["wrong"])
	}
}

// OSU's method sets the numbers of iterations, unless flags do.
func TestOSU(t *testing.T) {
	lines := clitest.JSON(t, "perf broadcast --ranks 2 --osu --algo mcast -b 4095 -e 8190 -f 2 --json")
	for i, iters := range []float64{1000, 100} {
		if l := lines[i]; l["iters"] != iters || l["warmup"] != 100. || l["timed"] != "leaves" || l["wrong"] != 0. {
			t.Errorf("%v", l)
		}
	}
	l := clitest.JSON(t, "perf allgather --ranks 2 --osu -b 64 -n 3 -w 1 --json")[0]
	if l["iters"] != 3. || l["warmup"] != 1. || l["timed"] != "all" {
		t.Errorf("%v", l)
	}
}
