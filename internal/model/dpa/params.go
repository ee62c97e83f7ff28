package dpa

// The machine as the paper and public documents describe it. Parameters names the source of
// each number.
const (
	Cores          = 16
	ThreadsPerCore = 16
	MaxThreads     = Cores * ThreadsPerCore
	ClockHz        = 1.8e9

	// MTU is the payload of one packet, and therefore of a UD chunk.
	MTU = 4096
	// QueueDepth is the number of receives that a worker has posted.
	QueueDepth = 8192

	// FittedPort is the only fitted number. It is off by default; see Parameters.
	FittedPort = 30
)

// Header bytes of an InfiniBand packet: LRH 8, GRH 40, BTH 12, ICRC 4, VCRC 2, and the
// headers of the operation.
const (
	baseHeader = 66
	udHeader   = baseHeader + 12 // DETH 8, immediate 4
	ucHeader   = baseHeader + 20 // RETH 16, immediate 4, once per chunk
)

const (
	ucInstructions, ucCycles, ucAccesses = 66, 598, 5
	udInstructions, udCycles, udAccesses = 113, 1084, 9

	pcieBytesPerSecond = 16e9 / 8 * 16 * 128 / 130

	activationCycles = 1800
	notifyCycles     = 1800

	edgeInstructions, edgeAccesses = 40, 4 // before and after the loop
	edgeLatency                    = (ucCycles - ucInstructions) / ucAccesses
)

// Kind is the origin of a parameter, and says how far it can be trusted.
type Kind string

// The origins of parameters.
const (
	Cited      Kind = "cited"            // a document says so
	Benchmark  Kind = "authors' code"    // the authors' published benchmark
	Calibrated Kind = "Table I"          // it makes the model meet Table I
	Assumed    Kind = "assumed"          // no source; the note says what depends on it
	Fitted     Kind = "fitted on Fig 16" // chosen to meet a figure; off by default
)

// A Parameter is one number of the model and its source.
type Parameter struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Kind   Kind   `json:"kind"`
	Source string `json:"source"`
}

// Parameters lists all numbers of the model.
func Parameters() []Parameter {
	return []Parameter{
		{"cores, threads per core, clock", "16, 16, 1.8 GHz", Cited, "paper, Sec. II: the accelerator"},
		{"placement", "the 16 threads of core 0 first, then core 1", Cited, "paper, Sec. VI, experimental setup"},
		{"receive queue of a worker", "8192 entries", Cited, "paper, Sec. III-D"},
		{
			"chunks to workers", "ideal sender: round-robin; benchmark's sender: one contiguous block each", Benchmark,
			"paper, Sec. VI, has one connection per worker; the benchmark divides the buffer into equal blocks",
		},
		{
			"window of the sender (--window)", "128 chunks per connection", Benchmark,
			"bmark.py: default_txw; the sender posts the next window of a connection when the last one is acknowledged",
		},
		{
			"threads of the sender", "1 up to 8 connections, 2 up to 16, 4 beyond", Benchmark, "bmark.py: get_pe_num",
		},
		{
			"posting (--post)", "40 ns per chunk", Assumed,
			"about 100 cycles of the paper's CPU; the table of senders has 20 to 80. 4 threads must take at most 82 ns to " +
				"offer 48.8 M chunks/s",
		},
		{
			"acknowledgement (--ack)", "3 us", Assumed,
			"from the last chunk of a window on the link to the next post: a round trip and two accesses over PCIe; the " +
				"table of senders has 1 to 8",
		},
		{
			"chunks of a connection in a row", "1", Assumed,
			"network cards take turns between connections; no document says after how many chunks",
		},
		{
			"slow receivers", "do not slow the sender down", Benchmark,
			"it uses reliable connections, which cards acknowledge by themselves; a window is smaller than the receive queue",
		},
		{"packet payload", "4096 bytes", Cited, "paper, Sec. III-D: the MTU"},
		{
			"headers", "UD 78; UC 86, and 66 for each further packet", Cited,
			"InfiniBand specification: LRH, GRH, BTH, DETH or RETH, immediate, CRCs",
		},
		{"instructions per chunk", "UC 66, UD 113", Calibrated, "column Instructions/CQE"},
		{
			"memory accesses per chunk", "UC 5, UD 9", Calibrated,
			"counted in App. C for UC (completion, its doorbell record, receive doorbell record, bitmap load and " +
				"store); UD, whose kernel is not printed, adds the work request, its doorbell record, the doorbell and " +
				"the copy's completion",
		},
		{
			"cycles per access", "UC 106 to 107, UD 107 to 108", Calibrated,
			"cycles minus instructions, divided by accesses: one latency of about 107 explains both rows",
		},
		{
			"wait for the copy", "4096 bytes at 31.5 GB/s: 234 cycles", Calibrated,
			"not in the cycles of Table I, which would give 6.3 GiB/s and not 5.2: 224 to 249 cycles are missing, as " +
				"5.2 is rounded. A worker re-posts the staging slot that it has just emptied, so it must wait until the " +
				"DMA has read it; the DMA moves data at the rate of PCIe 4.0 x16 (Sec. VI). The published kernel does not " +
				"wait for each copy, so this stands for other costs: its timer leaves out the poll that finds the chunk, " +
				"which is about 107 of these cycles. As the latency of an access, it gives the same " +
				"numbers of threads without --port",
		},
		{
			"copies at once", "1, first come first served", Assumed,
			"one PCIe link to the host; it limits the rate only above 29 GiB/s",
		},
		{
			"issue slots of a core", "1 instruction per cycle", Assumed,
			"the minimum contention that 16 threads on one core can have; it bounds Figure 16",
		},
		{
			"thread that gets the slot", "first come first served, until the next access", Assumed,
			"cores switch threads when one stalls; with all slots in use, a switch in each cycle would give the same " +
				"throughput",
		},
		{
			"latencies", "constant", Assumed,
			"threads fall into step and hardly compete for the slot: with varying latencies there would be more " +
				"contention",
		},
		{
			"polling", "the kernel's first access, repeated", Assumed,
			"App. C polls in its loop; idle threads take slots from busy ones",
		},
		{"accesses in progress", "not limited", Assumed, "no document gives a limit"},
		{"activation of a thread", "1 us", Assumed, "shows in small buffers only (Figure 14)"},
		{
			"before and after the loop", "40 instructions and 4 accesses each", Assumed,
			"counted in App. C, roughly; shows in small buffers only",
		},
		{
			"flag in host memory", "1 us", Cited,
			"paper, Sec. III-B: 1 to 3 us over PCIe; the minimum, as a write goes one way",
		},
		{
			"memory port of a core (--port)", "0 cycles; 30 in the columns called port", Fitted,
			"cycles for which an access keeps the core's other accesses from starting. 30 is the minimum at which " +
				"both kernels need 128 threads in Figure 16, and not 64; the paper does not say that they do",
		},
	}
}
