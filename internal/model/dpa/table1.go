package dpa

import "math"

// Measured is a row of Table I: one thread, chunks of 4 KiB, a buffer of 8 MiB.
type Measured struct {
	Transport    Transport
	Throughput   float64 // GiB/s
	Instructions int64
	Cycles       int64
}

// TableI is Table I of the paper.
var TableI = []Measured{
	{UC, 11.9, ucInstructions, ucCycles},
	{UD, 5.2, udInstructions, udCycles},
}

func measured(t Transport) Measured {
	if t == UC {
		return TableI[0]
	}
	return TableI[1]
}

// The paper's experiments.
const (
	paperChunk  = 4096
	paperBuffer = 8 << 20
	paperLink   = 200e9

	full = 0.97 // share of the link's rate; headers leave 97.9 % (UC) and 98.1 % (UD)

	smallChunk = 64
	// nextRate is the chunk rate of a link of 1.6 Tbit/s with packets of 4 KiB.
	nextRate = 1600e9 / 8 / paperChunk
	// smallBuffer has enough chunks to measure a rate, and few enough to run within a second.
	smallBuffer = 2 << 20
)

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

// fillsLink reports whether the run keeps up with the link.
func (r *Result) fillsLink() bool { return r.LinkShare >= full }

// fewest is the smallest sufficient power of two of threads, or 0.
func fewest(cfg Config, enough func(*Result) bool) int {
	for cfg.Threads = 1; cfg.Threads <= MaxThreads; cfg.Threads *= 2 {
		if enough(cfg.run()) {
			return cfg.Threads
		}
	}
	return 0
}
