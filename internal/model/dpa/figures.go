package dpa

import "fmt"

// CompareFigure13 compares the throughput by threads.
func CompareFigure13() *Table {
	t := &Table{
		Title: "Figure 13: throughput by threads, GiB/s",
		Notes: []string{
			"Chunks of 4 KiB, 8 MiB, 200 Gbit/s (23.3 GiB/s). The paper's text gives only these points of its",
			"curves.",
		},
		Columns: []string{
			"threads", "UC paper", "UC benchmark's sender", "UC ideal sender", "UC linear",
			"UD paper", "UD benchmark's sender", "UD ideal sender", "UD linear",
		},
	}
	said := map[Transport]map[int]string{
		UC: {1: "11.9", 4: "full", 8: "full", 16: "full"},
		UD: {1: "5.2", 8: "full from 8", 16: "to 16"},
	}
	for n := 1; n <= 2*ThreadsPerCore; n *= 2 {
		row := []any{n}
		for _, tr := range []Transport{UC, UD} {
			row = append(row, said[tr][n],
				experiment(tr).with(n, BenchmarkSender).run().Throughput, experiment(tr).with(n, Sender{}).run().Throughput,
				linearThroughput(tr, n, paperChunk))
		}
		t.row(row...)
	}
	return t
}

// CompareFigure14 compares the throughput by size of the buffer.
func CompareFigure14() *Table {
	t := &Table{
		Title: "Figure 14: throughput by buffer, GiB/s",
		Notes: []string{
			"Chunks of 4 KiB, 200 Gbit/s, the benchmark's sender. The paper's text gives no number of this",
			"figure beyond those of Figure 13. Linear extrapolation has no fixed cost: it is the same for all",
			"buffers.",
		},
		Columns: []string{
			"buffer, KiB", "UC, 1 thread", "UC, 4 threads", "UC, 16 threads",
			"UD, 1 thread", "UD, 4 threads", "UD, 8 threads", "UD, 16 threads",
		},
	}
	runs := []struct {
		tr Transport
		n  int
	}{{UC, 1}, {UC, 4}, {UC, 16}, {UD, 1}, {UD, 4}, {UD, 8}, {UD, 16}}
	for _, kib := range []int64{64, 256, 1 << 10, 4 << 10, 8 << 10, 64 << 10} {
		row := []any{kib}
		for _, run := range runs {
			cfg := experiment(run.tr).with(run.n, BenchmarkSender)
			cfg.Buffer = kib << 10
			row = append(row, cfg.run().Throughput)
		}
		t.row(row...)
	}
	row := []any{"linear"}
	for _, run := range runs {
		row = append(row, linearThroughput(run.tr, run.n, paperChunk))
	}
	t.row(row...)
	return t
}

// CompareFigure15 compares the throughput by size of the chunks.
func CompareFigure15() *Table {
	t := &Table{
		Title: "Figure 15: UC with chunks of several packets, GiB/s",
		Notes: []string{
			"8 MiB, 200 Gbit/s, the benchmark's sender. The paper says that line rate takes fewer threads as",
			"the chunk grows, but gives no number. needs: the smallest power of two of threads with 97 % of the",
			"throughput of 16.",
		},
		Columns: []string{
			"chunk, KiB", "1 thread", "2 threads", "4 threads", "16 threads", "needs", "needs, ideal sender", "needs, linear",
		},
	}
	for kib := int64(4); kib <= 64; kib *= 2 {
		cfg := experiment(UC)
		cfg.Chunk = kib << 10
		row := []any{kib}
		for _, n := range []int{1, 2, 4, ThreadsPerCore} {
			row = append(row, cfg.with(n, BenchmarkSender).run().Throughput)
		}
		linear, _ := linearThreads(UC, full*paperLink/8/float64(cfg.Chunk))
		t.row(append(row, threadsOfACore(cfg.with(1, BenchmarkSender)), threadsOfACore(cfg), linear)...)
	}
	return t
}

// CompareFigure16 compares the rate of small chunks.
func CompareFigure16() *Table {
	t := &Table{
		Title: "Figure 16: millions of chunks of 64 bytes per second",
		Notes: []string{
			fmt.Sprintf("200 Gbit/s are %.0f M chunks/s (UC) and %.0f M (UD), so the link is not the limit at 48.8 M. The",
				linkRate(UC), linkRate(UD)),
			"benchmark's sender posts with 1 thread for up to 8 connections, 2 up to 16 and 4 beyond. port: the",
			"ideal sender with --port 30. linear: by the throughput of Table I. The paper's text has one point:",
			"128 threads sustain 48.8 M.",
		},
		Columns: []string{
			"threads", "paper", "UC benchmark's sender", "UC ideal sender", "UC port", "UC linear",
			"UD benchmark's sender", "UD ideal sender", "UD port", "UD linear",
		},
	}
	for n := 1; n <= nextThreads; n *= 2 {
		said := ""
		if n == nextThreads {
			said = "48.8 or more"
		}
		row := []any{n, said}
		for _, tr := range []Transport{UC, UD} {
			cfg := small(tr).with(n, Sender{})
			ported := cfg
			ported.Port = FittedPort
			linear := measured(tr).Throughput * (1 << 30) / paperChunk * float64(n)
			row = append(row, cfg.with(n, BenchmarkSender).run().ChunkRate/1e6, cfg.run().ChunkRate/1e6,
				ported.run().ChunkRate/1e6, linear/1e6)
		}
		t.row(row...)
	}
	return t
}

// linkRate is the millions of small chunks per second on the paper's link.
func linkRate(t Transport) float64 { return paperLink / 8 / float64(wireBytes(t, smallChunk)) / 1e6 }
