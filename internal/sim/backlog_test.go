package sim

import (
	"encoding/json"
	"testing"
)

// resultText returns a Result as text, without the real time that the run took.
func resultText(t *testing.T, cfg Config) string {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.WallMS = 0
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Hosts that take each datagram at once give the same results as hosts that catch up later, to the last
// event.
func TestBacklogChangesNothing(t *testing.T) {
	t.Parallel()
	for s := uint64(1); s <= fewer(uint64(*seeds/4)); s++ {
		cfg := randomConfig(s)
		cfg.Flow, cfg.RecvCost, cfg.Gather, cfg.Late = "none", 0, 0, 0 // hosts postpone nothing otherwise
		got := resultText(t, cfg)
		cfg.eager = true
		if want := resultText(t, cfg); got != want {
			t.Fatalf("seed %d:\n%s\nat once:\n%s", s, got, want)
		}
	}
	for _, op := range []string{"allgather", "broadcast", bothAtOnce} {
		cfg := base(t, op, "fat-tree:48,6,3", 100e3)
		cfg.Algo, cfg.Subgroups = "", 2
		got := resultText(t, cfg)
		cfg.eager = true
		if want := resultText(t, cfg); got != want {
			t.Fatalf("%s:\n%s\nat once:\n%s", op, got, want)
		}
	}
}
