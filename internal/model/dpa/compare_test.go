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
	want := []struct {
		sender, ideal, port, throughput, cycles int
		verdict                                 string // with the benchmark's sender
	}{
		{4, 2, 2, 2, 2, "hit"},       // the paper: 4
		{8, 8, 8, 8, 4, "hit"},       // 8 to 16
		{32, 32, 128, 16, 32, "hit"}, // 128 are enough
		{64, 64, 128, 64, 32, "hit"}, // 128 are enough
	}
	for i, row := range CompareThreads().Values {
		w := want[i]
		if row[2] != w.sender || row[3] != w.verdict || row[4] != w.ideal || row[6] != w.port ||
			row[7] != w.throughput || row[8] != w.cycles {
			t.Errorf("%v, want %+v", row, w)
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

// docs/dpa.md refers to these rows.
func TestSenders(t *testing.T) {
	if testenv.Race {
		t.Skip("many runs: only without the race detector")
	}
	want := []struct {
		uc, ud   int
		possible bool // whether a CPU core can be as close to an accelerator core as in the paper
		large    int  // UC threads with 64 MiB
	}{
		{2, 8, true, 2},  // the ideal sender
		{2, 8, true, 2},  // a pause of 3.6 us
		{4, 8, true, 2},  // 4.6
		{4, 8, true, 2},  // 5.6
		{4, 8, false, 2}, // the benchmark's sender with our times: 8.1
		{4, 8, false, 2},
		{4, 16, false, 4},
		{4, 8, false, 2}, // 4 chunks in a row
		{2, 8, false, 2}, // 16 in a row
		{2, 8, false, 2}, // whole windows
	}
	for i, row := range CompareSenders().Values {
		if w := want[i]; row[6] != w.uc || row[7] != w.ud || row[8].(float64) <= 25 != w.possible ||
			row[9] != w.large {
			t.Errorf("row %d: %v, want %+v", i, row, w)
		}
	}
}

func TestPortLimit(t *testing.T) {
	if testenv.Race {
		t.Skip("many runs: only without the race detector")
	}
	for _, tr := range []Transport{UC, UD} {
		limit := PortLimit(tr)
		for port, want := range map[int]bool{limit: true, limit + 1: false} {
			cfg := small(tr).with(nextThreads, Sender{})
			cfg.Port = int64(port)
			if got := run(t, cfg).ChunkRate >= nextRate; got != want {
				t.Errorf("%s: port of %d cycles: sustained %v, want %v", tr, port, got, want)
			}
		}
	}
}

// A shared resource of the core that limits two threads limits four as well, so it does not explain the paper's four.
func TestPortLimitsTwoThreadsLikeFour(t *testing.T) {
	const port = 64
	throughput := func(threads int, port int64) float64 {
		cfg := experiment(UC).with(threads, Sender{})
		cfg.Port = port
		return run(t, cfg).Throughput
	}
	two, four := throughput(2, port), throughput(4, port)
	if two >= full*throughput(2, 0) || four > 1.01*two {
		t.Errorf("port of %d cycles: %.2f GiB/s with 2 threads, %.2f with 4", port, two, four)
	}
}
