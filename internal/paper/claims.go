package paper

// Testbed is the network on which the paper measured: 188 hosts, 12 leaves and 6 spines.
const Testbed = "fat-tree:188,12,6"

// A Claim is one statement of the paper with a number, and what Allcast finds.
type Claim struct {
	ID        string
	Where     string // in the paper
	Title     string
	Paper     string // statement and number
	Ours      string // measurement
	Tolerance string
	Checks    []Check
}

// A Check is a place that checks a claim. Exactly one of Test, Command, Target and Page
// is set.
type Check struct {
	Package string // directory of Test
	Test    string // name of a test function
	Command string // arguments of allcast
	Target  string // target of make
	Page    string // file with the measured numbers
}

// Claims are the claims in the order of their numbers. Tests and pages refer to the IDs.
var Claims = []Claim{
	{
		ID: "C1", Where: "Figure 2", Title: "link traffic of Allgather",
		Paper: "On 1024 hosts with radix-32 switches, a ring moves twice as many bytes over links as multicast.",
		Ours: "Counted on the graph, in block-link traversals: linear 5 732 352, ring 2 234 232, recursive " +
			"doubling 5 732 352, multicast 1 118 208.",
		Tolerance: "exact; ring over multicast between 1.99 and 2.01",
		Checks: []Check{
			{Package: "internal/model", Test: "TestPaperC1"},
			{Package: "internal/topology", Test: "TestTraversals"},
			{Command: "model traffic --topology fat-tree3:1024,32"},
		},
	},
	{
		ID: "C2", Where: "Appendix B, Figure 3", Title: "Allgather and Reduce-Scatter at once",
		Paper: "Multicast with in-network reduction is 2 - 2/P times as fast as two rings.",
		Ours: "The model gives the same formula and shares. The simulator is within 1.3 % of it for 4 to " +
			"188 ranks.",
		Tolerance: "model exact; simulator 5 %",
		Checks: []Check{
			{Package: "internal/model", Test: "TestPaperC2"},
			{Package: "internal/model", Test: "TestPaperFigure3"},
			{Package: "internal/sim", Test: "TestBothAtOnce"},
			{Command: "model speedup"},
			{Page: "docs/collectives.md"},
		},
	},
	{
		ID: "C3", Where: "Insight 1", Title: "every byte crosses every link once",
		Paper: "No byte of a send buffer crosses a link more than once.",
		Ours: "`max_crossings` of a simulated run without losses is 1, and its payload on links is the " +
			"lower bound.",
		Tolerance: "exact; headers and control messages add at most 3 %",
		Checks: []Check{
			{Package: "internal/sim", Test: "TestEveryByteCrossesEveryLinkOnce"},
			{Command: "sim allgather --topology fat-tree:16,4,2 --bytes 64K --json"},
		},
	},
	{
		ID: "C4", Where: "Figure 7", Title: "PSN bits, bitmap and buffer",
		Paper: "1.5 MB of bitmap address a receive buffer of about 50 GB in chunks of 4 KiB.",
		Ours: "49 to 52 GB, with one bit per chunk as in the paper. Allcast's own record (`internal/place`) " +
			"takes four bits per chunk: claimed, in place, claimed by a read, and a generation.",
		Tolerance: "49 to 52 GB, for either meaning of MB",
		Checks: []Check{
			{Package: "internal/model", Test: "TestPaperC4"},
			{Package: "internal/mcast", Test: "TestPaperSectionIIID"},
			{Command: "model psn"},
		},
	},
	{
		ID: "C5", Where: "Section III-D", Title: "resources of a communicator",
		Paper: "Staging takes at most 32 MiB, and 4 MiB in practice. The ring needs two reliable " +
			"connections. More than 16 communicators fit in 1.5 MB.",
		Ours:      "The same numbers from the model.",
		Tolerance: "exact",
		Checks: []Check{
			{Package: "internal/model", Test: "TestPaperC5"},
			{Package: "internal/mcast", Test: "TestPaperSectionIIID"},
			{Command: "model psn"},
		},
	},
	{
		ID: "C6", Where: "Appendix A", Title: "schedule of the chains",
		Paper: "With M chains over P ranks and R = P/M, the ranks P_i, P_(R+i), ..., P_((M-1)R+i) send in " +
			"step i.",
		Ours:      "The same schedule; Allcast also takes an M that does not divide P.",
		Tolerance: "exact",
		Checks:    []Check{{Package: "internal/mcast", Test: "TestPaperAppendixA"}},
	},
	{
		ID: "C7", Where: "Figure 10", Title: "share of data movement",
		Paper: "From 16 nodes on, 99 % of the progress time of an Allgather is data movement.",
		Ours: "True for blocks of 256 KiB and more. With smaller blocks it takes more nodes, because the " +
			"barrier costs log P messages whatever the size.",
		Tolerance: "at least 98 % on the testbed with blocks of 64 KiB",
		Checks: []Check{
			{Package: "internal/sim", Test: "TestEveryByteCrossesEveryLinkOnce"},
			{Page: "docs/phases.md"},
		},
	},
	{
		ID: "C8", Where: "Figure 11", Title: "time beside point-to-point algorithms",
		Paper: "On the testbed, Broadcast is up to 1.3 times as fast as k-nomial trees and 4.75 times as " +
			"fast as binary trees. Allgather is level with the ring at 128 to 256 KiB.",
		Ours: "In the simulator, Broadcast of 1 MiB is 2.2 times as fast as the best tree, which is the " +
			"binary tree. Allgather takes 1.03 times as long as the ring at 128 KiB.",
		Tolerance: "Broadcast at least 1.3 times as fast as each tree; Allgather within 5 % of the ring",
		Checks: []Check{
			{Package: "internal/paper", Test: "TestTestbed"},
			{Page: "docs/collectives.md"},
		},
	},
	{
		ID: "C9", Where: "Figure 11", Title: "variation from run to run",
		Paper:     "The multicast collectives vary far less than the point-to-point ones.",
		Ours:      "Partly: it depends on the kind of noise and on the algorithm beside it.",
		Tolerance: "none; the page shows all deviations",
		Checks:    []Check{{Page: "docs/collectives.md"}},
	},
	{
		ID: "C10", Where: "Figure 12", Title: "traffic at the switch ports",
		Paper: "On the testbed, multicast puts 1.5 to 2 times less traffic on the ports of the switches.",
		Ours: "In the simulator 1.99 times less for Allgather, at least 1.98 for Broadcast. In the lab, " +
			"with headers, control and joining, 1.99 and at least 1.64.",
		Tolerance: "simulator: 1.98 to 2 for the ring, at least 1.98 for trees",
		Checks: []Check{
			{Package: "internal/paper", Test: "TestTestbed"},
			{Package: "internal/report", Test: "TestPaperBesideOurs"},
			{Target: "figure12"},
			{Page: "docs/collectives.md"},
			{Page: "docs/figure12.md"},
		},
	},
	{
		ID: "C11", Where: "Table I", Title: "one accelerator thread",
		Paper: "With chunks of 4 KiB, UC: 11.9 GiB/s, 66 instructions and 598 cycles per completion. UD: 5.2 " +
			"GiB/s, 113 and 1084.",
		Ours:      "The model of the accelerator is calibrated on these numbers.",
		Tolerance: "cycles and instructions exact; throughput 5 % (UC) and 1 % (UD)",
		Checks: []Check{
			{Package: "internal/model/dpa", Test: "TestTableI"},
			{Package: "internal/model/dpa", Test: "TestTracesHaveTheTablesCosts"},
			{Command: "model dpa"},
			{Page: "docs/dpa.md"},
		},
	},
	{
		ID: "C12", Where: "Figures 13 and 14", Title: "threads for 200 Gbit/s",
		Paper: "UC needs 4 threads and UD 8 to 16. One accelerator core is 25 % ahead of a CPU core.",
		Ours: "The model needs 2 threads for UC (missed) and 8 for UD. The CPU core of the machine here is " +
			"not comparable.",
		Tolerance: "thread counts of the model exact",
		Checks: []Check{
			{Package: "internal/model/dpa", Test: "TestThreadCounts"},
			{Page: "docs/dpa.md"},
			{Page: "docs/offload.md"},
		},
	},
	{
		ID: "C13", Where: "Figure 15", Title: "larger chunks",
		Paper:     "With larger chunks, UC reaches the line rate with fewer threads.",
		Ours:      "The model agrees. Chunks of several packets are also measured with the eBPF datapath.",
		Tolerance: "the throughput of one thread grows from 1 to 16 KiB",
		Checks: []Check{
			{Package: "internal/model/dpa", Test: "TestLargerChunksNeedFewerThreads"},
			{Page: "docs/dpa.md"},
			{Page: "docs/offload.md"},
		},
	},
	{
		ID: "C14", Where: "Figure 16", Title: "small chunks",
		Paper: "128 threads process 48.8 million chunks of 64 B per second, the rate of a link of 1.6 Tbit/s.",
		Ours: "The model needs 32 (UC) or 64 threads (UD): missed, unless one parameter is fitted to this " +
			"number.",
		Tolerance: "thread counts of the model exact",
		Checks: []Check{
			{Package: "internal/model/dpa", Test: "TestThreadCounts"},
			{Package: "internal/model/dpa", Test: "TestFittedPort"},
			{Page: "docs/dpa.md"},
		},
	},
	{
		ID: "C15", Where: "Figure 5", Title: "one CPU core with a datagram datapath",
		Paper:     "One CPU core does not reach 200 Gbit/s.",
		Ours:      "It holds: one core of the machine here receives at most 10 % of that rate.",
		Tolerance: "none; measured by `go run ./bench/receive`",
		Checks:    []Check{{Page: "docs/offload.md"}},
	},
}

// slips are mistakes in the paper's own numbers.
var slips = []string{
	"The paper says that 64 KiB of bitmap address a buffer of 16 GB. At 4 KiB per chunk they address 2 " +
		"GiB; 16 GiB need 512 KiB.",
	"The paper counts traffic with a distance formula. Its counts for 1024 hosts differ from the counts " +
		"on the graph in C1.",
}

// mistakes are faults of the authors' prototypes. Every mistake with a Test has one that
// fails if Allcast repeats it.
var mistakes = []struct {
	text   string
	checks []Check
}{
	{
		"The fetch uses the length of the last chunk for any gap that completes a block. If a middle chunk is " +
			"lost and the tail is short, the data is silently wrong.",
		authors,
	},
	{"Duplicates count as progress.", authors},
	{"The cutoff starts before the barrier and has no additive term, so small messages always expire.", authors},
	{"If M does not divide P, there is only one chain.", authors},
	{"There is only one subgroup and one worker.", authors},
	{
		"Only one operation is in flight; packets of the next one are dropped as stale.",
		[]Check{{Package: "internal/sim", Test: "TestManyAtOnce"}},
	},
	{"The non-blocking call blocks in two barriers.", []Check{{Package: "internal/sim", Test: "TestManyAtOnce"}}},
	{"A dead rank leaves all others waiting.", []Check{{Package: "internal/sim", Test: "TestCrash"}}},
	{
		"The accelerator is measured over reliable connections and without recovery.",
		[]Check{{Package: "internal/sim", Test: "TestAcceleratorReceives"}},
	},
	{"Idle threads spin.", []Check{{Package: "internal/e2e/observe", Test: "TestIdleCost"}}},
	{"Sizes that are no multiple of the chunk are refused, and large ones end the process.", authors},
}

var authors = []Check{{Package: "internal/mcast", Test: "TestAuthorsMistakes"}}
