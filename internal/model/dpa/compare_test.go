package dpa

import (
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// The number of threads in the model for each experiment for which the paper gives one. If these numbers
// change, docs/dpa.md changes as well: run make docs.
func TestThreadCounts(t *testing.T) {
	if testenv.Race {
		t.Skip("many runs: only without the race detector")
	}
	want := []struct{ model, port, throughput, cycles int }{
		{2, 2, 2, 2},      // the paper: 4
		{8, 8, 8, 4},      // 8 to 16
		{32, 128, 16, 32}, // 128
		{64, 128, 64, 32}, // 128
	}
	for i, q := range questions() {
		n := fewest(q.cfg, q.enough)
		q.cfg.Port = FittedPort
		port := fewest(q.cfg, q.enough)
		a, b := linearThreads(q.cfg.Transport, q.rate)
		if w := want[i]; n != w.model || port != w.port || a != w.throughput || b != w.cycles {
			t.Errorf("%s: model %d, with port %d, linear %d and %d; want %+v", q.name, n, port, a, b, w)
		}
	}
}

// FittedPort is the smallest port time at which both kernels need more than 64 threads. 128 threads
// are enough.
func TestFittedPort(t *testing.T) {
	enough := func(tr Transport, threads int, port int64) bool {
		cfg := small(tr)
		cfg.Threads, cfg.Port = threads, port
		return run(t, cfg).ChunkRate >= nextRate
	}
	for _, tr := range []Transport{UC, UD} {
		if enough(tr, 64, FittedPort) || !enough(tr, 128, FittedPort) {
			t.Errorf("%s does not need 128 threads with the fitted port", tr)
		}
	}
	if !enough(UC, 64, FittedPort-1) {
		t.Error("a smaller port time also needs more than 64 threads")
	}
}

func TestLargerChunksNeedFewerThreads(t *testing.T) {
	cfg := experiment(UC)
	previous := 0.0
	for _, cfg.Chunk = range []int64{1 << 10, 4 << 10, 8 << 10, 16 << 10} {
		r := run(t, cfg)
		if r.Throughput <= previous {
			t.Errorf("chunks of %d: %.1f GiB/s, smaller ones %.1f", cfg.Chunk, r.Throughput, previous)
		}
		previous = r.Throughput
	}
}
