package dpa

import (
	"fmt"
	"strconv"
)

// A Table is one human-readable comparison with the paper.
type Table struct {
	Title   string     `json:"table"`
	Notes   []string   `json:"notes"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

func (t *Table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if f, ok := c.(float64); ok {
			row[i] = fmt.Sprintf("%.1f", f)
		} else {
			row[i] = fmt.Sprint(c)
		}
	}
	t.Rows = append(t.Rows, row)
}

// Compare compares the paper, the model and linear extrapolation.
func Compare() []*Table {
	return []*Table{tableI(), counts(), figure13(), figure14(), figure15(), figure16()}
}

// experiment is the paper's experiment with one thread.
func experiment(t Transport) Config {
	return Config{
		Transport: t, Threads: 1, Chunk: paperChunk, Buffer: paperBuffer, Link: paperLink, Queue: QueueDepth,
	}
}

func small(t Transport) Config {
	c := experiment(t)
	c.Chunk, c.Buffer = smallChunk, smallBuffer
	return c
}

func tableI() *Table {
	t := &Table{
		Title: "Table I: one thread, chunks of 4 KiB, 8 MiB (calibration)",
		Notes: []string{
			"The columns of Table I disagree: at 1.8 GHz, 598 cycles per chunk are 11.5 GiB/s and not 11.9,",
			"and 1084 are 6.3 and not 5.2. The model keeps the cycles. For UD it adds the wait for the copy;",
			"no wait makes UC faster, so that row stays 4 % low.",
		},
		Columns: []string{
			"kernel", "GiB/s, paper", "GiB/s, model", "instructions", "cycles, paper", "cycles, model",
			"wait for the copy", "off by",
		},
	}
	for _, m := range TableI {
		r := experiment(m.Transport).run()
		off := fmt.Sprintf("%+.1f %%", 100*(r.Throughput/m.Throughput-1))
		t.row(m.Transport, m.Throughput, r.Throughput, m.Instructions, m.Cycles, r.Cycles, r.Wait, off)
	}
	return t
}

// question is a question that the paper answers with a number of threads.
type question struct {
	name   string
	cfg    Config
	rate   float64 // chunks/s
	enough func(*Result) bool
	low    int // the paper's answer
	high   int
	fitted bool // whether the port is fitted to the answer
}

func questions() []question {
	next := func(r *Result) bool { return r.ChunkRate >= nextRate }
	const lineRate = full * paperLink / 8 / paperChunk
	return []question{
		{"97 % of 200 Gbit/s, UC", experiment(UC), lineRate, (*Result).fillsLink, 4, 4, false},
		{"97 % of 200 Gbit/s, UD", experiment(UD), lineRate, (*Result).fillsLink, 8, 16, false},
		{"48.8 M chunks/s of 64 B, UC", small(UC), nextRate, next, 128, 128, true},
		{"48.8 M chunks/s of 64 B, UD", small(UD), nextRate, next, 128, 128, true},
	}
}

func counts() *Table {
	t := &Table{
		Title: "The smallest power of two of threads",
		Notes: []string{
			"Figures 13 and 16. model: calibrated on Table I alone. with port: plus the one fitted parameter,",
			"--port 30. linear: one thread of Table I times the number of threads, by its throughput and by",
			"its cycles. 97 % is of the link's raw rate. UC is close: with 6 cycles per chunk more than the 598",
			"of Table I, two threads would not be enough. The paper says that 128 threads sustain 48.8 M",
			"chunks/s; it does not say whether fewer would.",
		},
		Columns: []string{"what", "paper", "model", "so", "with port", "so", "linear, throughput", "linear, cycles"},
	}
	for _, q := range questions() {
		n := fewest(q.cfg, q.enough)
		q.cfg.Port = FittedPort
		fitted := fewest(q.cfg, q.enough)
		a, b := linearThreads(q.cfg.Transport, q.rate)
		verdict := q.verdict(fitted)
		if q.fitted {
			verdict = "by the fit"
		}
		t.row(q.name, q.paper(), n, q.verdict(n), fitted, verdict, a, b)
	}
	return t
}

func (q question) paper() string {
	if q.low == q.high {
		return strconv.Itoa(q.low)
	}
	return fmt.Sprintf("%d to %d", q.low, q.high)
}

func (q question) verdict(n int) string {
	if n >= q.low && n <= q.high {
		return "hit"
	}
	return "miss"
}

// bothPorts runs an experiment without and with the fitted parameter.
func bothPorts(cfg Config) (plain, fitted *Result) {
	plain = cfg.run()
	cfg.Port = FittedPort
	return plain, cfg.run()
}

func figure13() *Table {
	t := &Table{
		Title: "Figure 13: throughput by threads, GiB/s",
		Notes: []string{
			"Chunks of 4 KiB, 8 MiB, 200 Gbit/s (23.3 GiB/s). The paper's text gives only these points of its",
			"curves.",
		},
		Columns: []string{
			"threads", "UC paper", "UC model", "UC with port", "UC linear", "UD paper", "UD model", "UD with port", "UD linear",
		},
	}
	said := map[Transport]map[int]string{
		UC: {1: "11.9", 4: "full", 8: "full", 16: "full"},
		UD: {1: "5.2", 8: "full from 8", 16: "to 16"},
	}
	for n := 1; n <= 2*ThreadsPerCore; n *= 2 {
		row := []any{n}
		for _, tr := range []Transport{UC, UD} {
			cfg := experiment(tr)
			cfg.Threads = n
			plain, fitted := bothPorts(cfg)
			row = append(row, said[tr][n], plain.Throughput, fitted.Throughput, linearThroughput(tr, n, paperChunk))
		}
		t.row(row...)
	}
	return t
}

func figure14() *Table {
	t := &Table{
		Title: "Figure 14: throughput by buffer, GiB/s",
		Notes: []string{
			"Chunks of 4 KiB, 200 Gbit/s. The paper's text gives no number of this figure beyond those of",
			"Figure 13. Linear extrapolation has no fixed cost: it is the same for all buffers.",
		},
		Columns: []string{"buffer", "UC 1", "UC 4", "UC 16", "UD 1", "UD 4", "UD 8", "UD 16"},
	}
	runs := []struct {
		tr Transport
		n  int
	}{{UC, 1}, {UC, 4}, {UC, 16}, {UD, 1}, {UD, 4}, {UD, 8}, {UD, 16}}
	for _, kib := range []int64{64, 256, 1 << 10, 4 << 10, 8 << 10, 64 << 10} {
		row := []any{fmt.Sprintf("%d KiB", kib)}
		for _, run := range runs {
			cfg := experiment(run.tr)
			cfg.Threads, cfg.Buffer = run.n, kib<<10
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

func figure15() *Table {
	t := &Table{
		Title: "Figure 15: UC with chunks of several packets, GiB/s",
		Notes: []string{
			"8 MiB, 200 Gbit/s. The paper says that line rate takes fewer threads as the chunk grows, but gives",
			"no number. needs: the smallest power of two of threads at 97 % of the link's rate.",
		},
		Columns: []string{"chunk", "1 thread", "linear", "2 threads", "linear", "4 threads", "linear", "needs", "linear"},
	}
	for kib := int64(4); kib <= 64; kib *= 2 {
		cfg := experiment(UC)
		cfg.Chunk = kib << 10
		row := []any{fmt.Sprintf("%d KiB", kib)}
		for _, n := range []int{1, 2, 4} {
			cfg.Threads = n
			row = append(row, cfg.run().Throughput, linearThroughput(UC, n, cfg.Chunk))
		}
		n := fewest(cfg, (*Result).fillsLink)
		linear, _ := linearThreads(UC, full*paperLink/8/float64(cfg.Chunk))
		t.row(append(row, n, linear)...)
	}
	return t
}

func figure16() *Table {
	t := &Table{
		Title: "Figure 16: millions of chunks of 64 bytes per second",
		Notes: []string{
			"200 Gbit/s are 167 M chunks/s (UC) and 176 M (UD), so the link is not the limit at 48.8 M.",
			"linear: by the throughput of Table I. The paper's text has one point: 128 threads sustain 48.8 M.",
			"Without the fitted port the model is far above it.",
		},
		Columns: []string{
			"threads", "paper", "UC model", "UC with port", "UC linear", "UD model", "UD with port", "UD linear",
		},
	}
	for n := 1; n <= 128; n *= 2 {
		said := ""
		if n == 128 {
			said = "48.8 or more"
		}
		row := []any{n, said}
		for _, tr := range []Transport{UC, UD} {
			cfg := small(tr)
			cfg.Threads = n
			plain, fitted := bothPorts(cfg)
			linear := measured(tr).Throughput * (1 << 30) / paperChunk * float64(n)
			row = append(row, plain.ChunkRate/1e6, fitted.ChunkRate/1e6, linear/1e6)
		}
		t.row(row...)
	}
	return t
}
