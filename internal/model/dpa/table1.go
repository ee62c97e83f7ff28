package dpa

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

	full = 0.97 // share of a core's throughput that counts as all of it

	smallChunk = 64
	// nextRate is the chunk rate of a link of 1.6 Tbit/s with packets of 4 KiB.
	nextRate = 1600e9 / 8 / paperChunk
	// nextThreads is the number of threads that reach it in the paper.
	nextThreads = 128
	// smallBuffer has enough chunks to measure a rate, and few enough to run within a second.
	smallBuffer = 2 << 20
)
