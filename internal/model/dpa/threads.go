package dpa

import (
	"fmt"
	"math"
	"sort"
	"time"
)

// question is a question that the paper answers with a number of threads.
type question struct {
	name      string
	cfg       Config
	rate      float64 // chunks/s, for linear extrapolation
	low, high int     // the paper's answer; low is 0 if it says only that high threads are enough
}

func questions() []question {
	const lineRate = full * paperLink / 8 / paperChunk
	return []question{
		{"full throughput, UC", experiment(UC), lineRate, 4, 4},
		{"full throughput, UD", experiment(UD), lineRate, 8, 16},
		{"48.8 M chunks/s of 64 B, UC", small(UC), nextRate, 0, nextThreads},
		{"48.8 M chunks/s of 64 B, UD", small(UD), nextRate, 0, nextThreads},
	}
}

// threads is the smallest sufficient power of two of threads, or 0.
func (q question) threads(s Sender, port int64) int {
	q.cfg.Port = port
	if q.cfg.Chunk == smallChunk {
		return fewest(q.cfg.with(1, s), func(r *Result) bool { return r.ChunkRate >= nextRate })
	}
	return threadsOfACore(q.cfg.with(1, s))
}

// threadsOfACore is the smallest power of two of threads that keeps up with a whole core.
func threadsOfACore(cfg Config) int {
	core := cfg.with(ThreadsPerCore, cfg.Sender).run().Throughput
	return fewest(cfg, func(r *Result) bool { return r.Throughput >= full*core })
}

func (q question) paper() string {
	switch q.low {
	case 0:
		return fmt.Sprintf("%d are enough", q.high)
	case q.high:
		return fmt.Sprint(q.low)
	}
	return fmt.Sprintf("%d to %d", q.low, q.high)
}

func (q question) verdict(n int) string {
	if n > 0 && n >= q.low && n <= q.high {
		return "hit"
	}
	return "miss"
}

// CompareThreads compares the numbers of threads that the paper gives.
func CompareThreads() *Table {
	t := &Table{
		Title: "The smallest power of two of threads",
		Notes: []string{
			"Figures 13 and 16. Full throughput is 97 % of that of a core with 16 threads. The benchmark's",
			"sender posts 128 chunks per connection and waits for their acknowledgement, see the next table;",
			"an ideal sender always has chunks to send. Both are calibrated on Table I alone. port: the ideal",
			"sender with --port 30. linear: one thread of Table I times the number of threads, by its",
			"throughput and by its cycles. The paper says that 128 threads sustain 48.8 M chunks/s, not that",
			"fewer do not.",
		},
		Columns: []string{
			"what", "paper", "benchmark's sender", "so", "ideal sender", "so", "port", "linear, throughput", "linear, cycles",
		},
	}
	for _, q := range questions() {
		sender, ideal := q.threads(BenchmarkSender, 0), q.threads(Sender{}, 0)
		a, b := linearThreads(q.cfg.Transport, q.rate)
		t.row(q.name, q.paper(), sender, q.verdict(sender), ideal, q.verdict(ideal), q.threads(Sender{}, FittedPort), a, b)
	}
	return t
}

// LossOfTwo is the share that two UC threads must deliver less than twice the throughput of Table I, if they do not
// reach the full throughput of the link.
func LossOfTwo() float64 {
	return 1 - full*linearThroughput(UC, MaxThreads, paperChunk)/(2*measured(UC).Throughput)
}

// PortLimit is the longest time of the memory port, in cycles and at most 255, at which 128 threads still sustain the
// rate of Figure 16.
func PortLimit(t Transport) int {
	cfg := small(t).with(nextThreads, Sender{})
	return sort.Search(256, func(port int) bool {
		cfg.Port = int64(port)
		return cfg.run().ChunkRate < nextRate
	}) - 1
}

// CompareSenders shows how far the numbers of threads depend on the assumptions about the sender.
func CompareSenders() *Table {
	t := &Table{
		Title: "The sender's pause, and the numbers of threads",
		Notes: []string{
			"Chunks of 4 KiB. pause: the time to post a window of 128 chunks, and to get the last one",
			"acknowledged. in a row: chunks of one connection that the card sends before it turns to the next.",
			"one connection: what a receiver without any cost gets, so the most that a CPU core can get. 2 of",
			"16: throughput of 2 threads, as a share of that of 16. ahead: by how much one accelerator core (UC)",
			"is at least ahead of a CPU core with one connection. All with 8 MiB, but for the last column.",
		},
		Columns: []string{
			"per chunk", "acknowledgement", "pause, us", "in a row", "one connection, GiB/s", "UC: 2 of 16, %", "UC threads",
			"UD threads", "ahead, %", "UC threads, 64 MiB",
		},
	}
	window := BenchmarkSender.Window
	for _, s := range []Sender{
		{},
		{Window: window, Post: 20 * time.Nanosecond, Ack: 1 * time.Microsecond},
		{Window: window, Post: 20 * time.Nanosecond, Ack: 2 * time.Microsecond},
		{Window: window, Post: 20 * time.Nanosecond, Ack: 3 * time.Microsecond},
		BenchmarkSender,
		{Window: window, Post: 60 * time.Nanosecond, Ack: 4 * time.Microsecond},
		{Window: window, Post: 80 * time.Nanosecond, Ack: 8 * time.Microsecond},
		BenchmarkSender.inARow(4),
		BenchmarkSender.inARow(16),
		BenchmarkSender.inARow(window),
	} {
		one := experiment(UC).with(1, s)
		offered := one.offered()
		two, core := one.with(2, s).run().Throughput, one.with(ThreadsPerCore, s).run().Throughput
		large := one
		large.Buffer = 64 << 20
		pause := time.Duration(s.Window)*s.Post + s.Ack
		t.row(s.Post, s.Ack, pause.Seconds()*1e6, max(1, s.Burst), offered, 100*two/core,
			threadsOfACore(one), threadsOfACore(experiment(UD).with(1, s)), 100*(core/offered-1), threadsOfACore(large))
	}
	return t
}

func (s Sender) inARow(chunks int) Sender {
	s.Burst = chunks
	return s
}

// fewest is the smallest sufficient power of two of threads, or 0.
func fewest(cfg Config, enough func(*Result) bool) int {
	for cfg.Threads = 1; cfg.Threads <= MaxThreads; cfg.Threads *= 2 {
		if enough(cfg.run()) {
			return cfg.Threads
		}
	}
	return 0
}

// linearThroughput is Table I's throughput times the threads, limited by the link, in GiB/s.
func linearThroughput(t Transport, threads int, chunk int64) float64 {
	payload := paperLink / 8 * float64(chunk) / float64(wireBytes(t, chunk)) / (1 << 30)
	return min(measured(t).Throughput*float64(threads)*float64(chunk)/paperChunk, payload)
}

// linearThreads is the smallest power of two of threads that reaches a chunk rate: by Table I's
// throughput, and by its cycles. The two do not agree.
func linearThreads(t Transport, rate float64) (byThroughput, byCycles int) {
	m := measured(t)
	return powerOfTwo(rate / (m.Throughput * (1 << 30) / paperChunk)), powerOfTwo(rate / (ClockHz / float64(m.Cycles)))
}

func powerOfTwo(x float64) int {
	n := 1
	for float64(n) < x && n < math.MaxInt/2 {
		n *= 2
	}
	return n
}
