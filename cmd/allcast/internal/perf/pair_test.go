package perf

import (
	"errors"
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// Both halves are verified, counted and named. TestVerifies covers all pairs.
func TestPair(t *testing.T) {
	lines := clitest.JSON(t, "perf allgather+reduce-scatter --ranks 3 --algo mcast+ring,ring+recursive-halving,auto+ring "+
		"-b 64K -n 2 --dtype bf16 --reduce avg --overlap --json")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3", len(lines))
	}
	for i, l := range lines {
		want := strings.Fields("mcast+ring ring+recursive-halving auto+ring")[i]
		o, ok := l["overlap_pct"].(float64)
		if l["op"] != bench.Pair || l["requested"] != want || l["bytes"] != 65536. || l["wrong"] != 0. || !ok || o < 0 ||
			o > 100 {
			t.Errorf("%v", l)
		}
		if i < 2 && l["algo"] != want {
			t.Errorf("%v ran instead of %s", l["algo"], want)
		}
	}
	if lines[0]["chunks_total"] == 0. || lines[0]["mcast_bytes"].(float64) < 65536 || lines[1]["mcast_bytes"] != 0. {
		t.Errorf("%v\n%v", lines[0], lines[1])
	}
}

// sent_bytes covers both halves: in a ring, P-1 blocks each.
func TestPairSends(t *testing.T) {
	const ranks, n = 4, 256 << 10
	job := testJob(bench.Pair)
	job.algos, job.sizes = []string{"ring+ring", "mcast+ring"}, []int64{n}
	errs, o := inWorld(t, ranks, allcast.Options{}, job)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, blocks := range []float64{2 * (ranks - 1), 1 + ranks - 1} {
		l := o.Objects(t)[i]
		if sent := l["sent_bytes"].(float64); sent < blocks*n || sent > 1.2*blocks*n {
			t.Errorf("%v: %.0f bytes sent, want about %.0f", l["algo"], sent, blocks*n)
		}
	}
}

func TestPairWithoutMulticast(t *testing.T) {
	job := testJob(bench.Pair)
	job.algos, job.sizes = []string{"auto", "ring+auto", "ring+ring"}, []int64{1 << 16}
	errs, o := inWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	lines := o.Objects(t)
	if lines[0]["fallback_reason"] == "" || lines[1]["fallback_reason"] == "" || lines[2]["fallback_reason"] != "" {
		t.Errorf("%v", lines)
	}
	job.algos = []string{"mcast+ring"}
	errs, _ = inWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	for r, err := range errs {
		if !errors.Is(err, allcast.ErrNoMulticast) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
