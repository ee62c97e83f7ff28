package main

import (
	"errors"
	"testing"

	"github.com/allcast/allcast"
)

// Both halves are verified, counted and named. TestPerfVerifies has all pairs.
func TestPerfPair(t *testing.T) {
	lines := jsonOf(t, "perf allgather+reduce-scatter --ranks 3 --algo mcast+ring,ring+recursive-halving,auto+ring -b 64K -n 2 --dtype bf16 --reduce avg --overlap --json")
	if len(lines) != 3 {
		t.Fatalf("%d lines, want 3", len(lines))
	}
	for i, l := range lines {
		want := fields("mcast+ring ring+recursive-halving auto+ring")[i]
		o, ok := l["overlap_pct"].(float64)
		if l["op"] != perfPair || l["requested"] != want || l["bytes"] != 65536. || l["wrong"] != 0. || !ok || o < 0 || o > 100 {
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

// What the busiest rank sends is what both halves have it send: in a ring P-1 blocks each.
func TestPerfPairSends(t *testing.T) {
	const ranks, n = 4, 256 << 10
	job := testJob(perfPair)
	job.algos, job.sizes = []string{"ring+ring", "mcast+ring"}, []int64{n}
	errs, o := perfWorld(t, ranks, allcast.Options{}, job)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for i, blocks := range []float64{2 * (ranks - 1), 1 + ranks - 1} {
		l := o.objects(t)[i]
		if sent := l["sent_bytes"].(float64); sent < blocks*n || sent > 1.2*blocks*n {
			t.Errorf("%v: %.0f bytes sent, want about %.0f", l["algo"], sent, blocks*n)
		}
	}
}

func TestPerfPairVolume(t *testing.T) {
	c := &perfCase{perfJob: &perfJob{op: perfPair}, n: 1000}
	if bytes, factor := c.volume(4); bytes != 8000 || factor != .75 {
		t.Errorf("%g bytes times %g, want what two rings send: 8000 times 0.75", bytes, factor)
	}
}

// A wrong byte in either half is found.
func TestPerfPairFindsWrong(t *testing.T) {
	job := testJob(perfPair)
	errs := inWorld(t, 2, func(comm *allcast.Comm) error {
		b, err := newPerfBench(t.Context(), comm)
		if err != nil {
			return err
		}
		c, err := b.newCase(t.Context(), job, "ring+ring", 100)
		if err != nil {
			return err
		}
		if err := b.once(t.Context(), c, &tally{}, nil); err != nil {
			return err
		}
		for i, p := range c.parts {
			p.recv[7] ^= 1
			if wrong := c.wrong(1); wrong != 1 {
				t.Errorf("%d bytes of half %d wrong, want 1", wrong, i)
			}
			p.recv[7] ^= 1
		}
		if c.parts[0].comm == c.parts[1].comm {
			t.Error("both halves on one communicator")
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestPerfPairWithoutMulticast(t *testing.T) {
	job := testJob(perfPair)
	job.algos, job.sizes = []string{"auto", "ring+auto", "ring+ring"}, []int64{1 << 16}
	errs, o := perfWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	lines := o.objects(t)
	if lines[0]["fallback_reason"] == "" || lines[1]["fallback_reason"] == "" || lines[2]["fallback_reason"] != "" {
		t.Errorf("%v", lines)
	}
	job.algos = []string{"mcast+ring"}
	errs, _ = perfWorld(t, 2, allcast.Options{NoMulticast: true}, job)
	for r, err := range errs {
		if !errors.Is(err, allcast.ErrNoMulticast) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
