// Package perf is "allcast perf": it measures and verifies an operation on the real network.
package perf

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

// Command is "allcast perf".
type Command struct {
	Operation string `arg:"" placeholder:"OPERATION"`

	Ranks *int   `placeholder:"N"`
	Algo  string `default:"auto" placeholder:"LIST"`
	sizeFlags
	Iters  *int `short:"n" placeholder:"ITERS" help:"Measured iterations (default 20)."`
	Warmup *int `short:"w" placeholder:"WARMUP"`
	Check  int  `short:"c" default:"1" placeholder:"0|1" help:"Verify every iteration on all ranks (default 1)."`

	Root    *int `placeholder:"R" help:"Root of a rooted operation (default 0)."`
	Subsets int  `default:"1" placeholder:"K"`
	Buffers *int `placeholder:"K"`
	multicastFlags
	InPlace bool    `name:"inplace" help:"Send from the receive buffer, or receive into the send buffer."`
	Both    bool    `help:"Measure out of place and in place, next to each other."`
	DType   *string `name:"dtype" placeholder:"T"`
	Reduce  *string `placeholder:"OP"`
	OSU     bool    `name:"osu"`
	Raw     *string `placeholder:"FILE"`
	Overlap bool

	fabricFlags
}

// sizeFlags choose the sizes of a sweep.
type sizeFlags struct {
	Min    *units.Size `name:"min" short:"b" placeholder:"MIN"`
	Max    *units.Size `name:"max" short:"e" placeholder:"MAX" help:"Largest size (default 1M)."`
	Factor *int        `short:"f" placeholder:"FACTOR"`
}

// multicastFlags have an effect on multicast only.
type multicastFlags struct {
	Chains    *int        `placeholder:"M"`
	ChainBy   *string     `placeholder:"rank|rack"`
	Subgroups *int        `placeholder:"S"`
	Chunk     *units.Size `placeholder:"BYTES"`
}

// fabricFlags choose the network, the datapath and the protection.
type fabricFlags struct {
	Fabric   string `default:"" placeholder:"ip|verbs"` // empty: as the environment says
	Device   string `default:"" placeholder:"D"`
	Datapath string `default:"" placeholder:"host|bpf|auto"`
	Hook     string `default:"" placeholder:"sockfilter|tcx|xdp"`

	Secure    bool
	Integrity bool
}

// FlagHelp implements cli.FlagHelp.
func (Command) FlagHelp() map[string]string {
	return map[string]string{
		"operation": "One of those above, also by its name in nccl-tests (all_gather, all_gather_perf) or in OSU's " +
			"benchmarks (osu_allgather).",
		"ranks": "Number of local ranks to start (default 8; 2 for pingpong and stream), unless a launcher started this " +
			"process as a rank.",
		"algo": "Algorithms to compare, separated by commas (default auto). For both at once, pairs: mcast+ring.",
		"subsets": "Disjoint sets of neighbouring ranks that run the operation at the same time, each in a communicator " +
			"of its own (default 1).",
		"buffers": "Buffers of a coalesced operation, or messages of a stream (default 64).",
		"min":     "Smallest size (default 4K). Without -e, the only one.",
		"factor":  "Factor from one size to the next (default 4). The size after 0 is 1.",
		"warmup": "Iterations before them, not timed (default 5). Use 0 to divide the counters of a network by the " +
			"iterations.",
		"chains": "Ranks that multicast at a time (default: what was fastest when the ranks joined; all ranks next to a " +
			"Reduce-Scatter). Values above what the operation can use are clamped.",
		"chain-by": "rank: as many chains of neighbouring ranks as --chains says; rack: one chain per rack, by " +
			"ALLCAST_RACK (default rank).",
		"subgroups": "Multicast groups (default: all of ALLCAST_GROUPS, or 1). Values above what the operation can use " +
			"are clamped.",
		"chunk": "Payload of a datagram (default: the largest that fits the network). A larger chunk is sent as several " +
			"packets with one header: less work, but one lost packet loses the whole chunk.",
		"dtype": "Element type of a reduction: f32, f64, f16, bf16, i8 to i64, u8 to u64, bool (default f32).",
		"reduce": "The reduction: sum, avg, min, max, prod; and, or, xor for integers and bool; premul-sum for floats, " +
			"where each rank multiplies its elements by a factor of its own (default sum).",
		"osu": "OSU's method, as the paper used it: without -n and -w, 1000 iterations below 4K and 100 from there on, " +
			"after 100 to warm up. A Broadcast is timed on its leaves.",
		"raw":     "Also write the time of every rank and iteration to a CSV file, on rank 0's machine.",
		"overlap": "Also measure which share of the operation's time is left for computing, as OSU's benchmarks do.",
		"fabric": "The network: ip, or verbs for InfiniBand and RoCE in a program built with that tag (default: " +
			"ALLCAST_FABRIC, or ip).",
		"device": "The verbs device and port, such as mlx5_0:1; several, separated by commas, are assigned to ranks " +
			"round-robin (default: ALLCAST_DEVICE, or the first that works).",
		"datapath": "Where received data is placed: host, in the process of each rank (default); bpf, in the kernel, " +
			"which needs CAP_BPF and CAP_PERFMON; auto, in the kernel if possible. Also set by ALLCAST_DATAPATH.",
		"hook": "Kernel hook for --datapath bpf or auto (default sockfilter); tcx and xdp also need CAP_NET_ADMIN. Also " +
			"set by ALLCAST_HOOK.",
		"secure": "Encrypt everything that ranks send to each other (AES-GCM). Without the key, nobody can read or " +
			"change it. Also set by ALLCAST_SECURE=on.",
		"integrity": "Add checksums to everything sent and to every result, to detect accidental changes in transit or " +
			"in memory. Also set by ALLCAST_INTEGRITY=on.",
	}
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	var list strings.Builder
	for _, o := range bench.Operations {
		fmt.Fprintf(&list, "  %-24s  %s\n", o.Name, o.Size)
	}
	return `Measures and verifies an operation on the real network. Started by torchrun, mpirun, srun or "allcast run", it
is one rank; otherwise it starts --ranks local ones. Flags without effect on the operation are errors.

Operations, and the meaning of the size N:
` + list.String() + `
N is that of the paper: one block, as in OSU's benchmarks. nccl-tests count the blocks of all ranks instead.
Reductions round N down to whole elements.

The time of an iteration is that of the slowest rank, and the time of a rank runs from leaving a barrier to the
end of the operation: clocks of different machines cannot be compared. algbw is the size of the largest buffer (N
times the ranks in Allgather and Reduce-Scatter) over the median time. busbw is algbw times the factor of
nccl-tests: (P-1)/P where each rank has its own block, 2(P-1)/P for Allreduce, 1 for Broadcast, Reduce and
messages. Both are in GB/s, 1e9 bytes/s. The last line is the average of busbw. JSON has them as algbw_GBps and
busbw_GBps, and for one more release as algbw_gbps and busbw_gbps.

sendrecv is that of nccl-tests: all ranks send to the next rank at once. pingpong is osu_latency, and its time is
half of a round trip. stream is osu_bw: the time is that of all --buffers messages and the answer. The last two
run on two ranks; --subsets K runs K pairs at once.

--subsets K divides the ranks into K sets, and each runs the operation by itself. Times are those of the slowest
set; bandwidths are those of one set.

A coalesced operation moves --buffers buffers of N bytes at once. Compare it with as many iterations of
broadcast or allgather of N bytes.

If a signal interrupts perf, it ends with the averages of the results so far, and with exit status 130 (SIGINT)
or 143 (SIGTERM).

allgather+reduce-scatter starts both without waiting, each on its own communicator, and ends when both have
ended: N is what one rank sends in the Allgather and receives in the Reduce-Scatter. algbw counts both results,
2NP bytes, and busbw is that times (P-1)/P: what the link of a rank would carry in each direction if both were
rings. sent_bytes and the other counters cover both. Algorithms are pairs, the Allgather's first; auto means
auto+auto.

--osu ignores the root of a Broadcast: the time of an iteration is that of the slowest leaf, from leaving the
barrier to having the data. Other operations are timed on all ranks. OSU's own benchmarks average over ranks;
--raw has the numbers for that.

--overlap first runs the operation alone. It then computes for as long as the operation took on average, alone
and between start and wait. overlap_pct is 100(1 - (both - computing)/operation), from 0 to 100, of averages
over all ranks, as in OSU's non-blocking benchmarks. OSU computes for a fixed time, but perf does a fixed amount
of work that takes that time alone: processor time that the operation uses then counts against it.

--raw writes one line per rank and measured iteration: rank,op,algo,bytes,iteration,start_ns,duration_ns. The
start is in ns since 1970 by the clock of that rank, after the barrier. The root of a Broadcast is included,
also with --osu; the iterations of -w and --overlap are not. The file appears when the job has ended.

sent_bytes and mcast_bytes are what the busiest rank handed to the network per operation, including our headers.
chunks_total (datagrams that multicast had to deliver), dropped_chunks, duplicate_chunks, copied_chunks,
corrupt_chunks (found by --integrity or --secure), repaired_bytes and wrong (bytes) are sums over ranks and
iterations. So are inc_sums (chunks that aggregators summed) and inc_fetched_bytes (inputs of chunks that they
did not). CPU times are per operation, averaged over ranks. idle_cpu_pct is the share of the processors' time that
nothing used on the machines of the ranks, while the measured iterations ran and were verified. It is null where the
system does not tell (Linux does), or where the measurement takes less than a tick, about 10 ms.

Contributions differ in every iteration, so that data left over from an earlier one is wrong. Reductions are
compared with the exact result; sums of floats use whole numbers that need no rounding, and premul-sum the
factors 1, 2 and 3. Products are compared
with a result in float64, within 2(P-1)u of it, and averages within 2u, where u is half a unit in the last place
of the type (2^-24 for f32).

Examples:
  allcast perf allgather --ranks 8 --algo mcast,ring -b 1M
  allcast perf allgather+reduce-scatter --algo mcast+ring,ring+ring -b 1M
  allcast perf alltoall --both -b 64K
  allcast perf osu_latency -b 1 -e 4M
  allcast perf broadcast-coalesced --buffers 500 -b 4K
  allcast perf broadcast --osu --algo mcast,binomial -b 1K -e 1M --raw times.csv
  allcast perf reduce-scatter --dtype bf16 -b 1K -e 4M -f 8 --json
  allcast perf allgather --secure -b 1M
  sudo allcast perf broadcast --ranks 4 --datapath bpf --hook tcx -b 64M -n 5
  mpirun -n 64 allcast perf allgather --fabric verbs --device mlx5_0:1 --algo mcast,ring -b 1M
  mpirun -n 4 allcast perf broadcast --algo mcast,binomial`
}

// defaultRanks is the number of local ranks without --ranks.
const defaultRanks = 8

// Arguments implements cli.Arguments.
func (Command) Arguments() (takes, needs string) {
	return "one operation, and flags",
		"an operation: " + operationNames(func(*bench.Operation) bool { return true })
}

// Run joins as one rank if a launcher started this process. Otherwise it starts local ranks.
func (c *Command) Run(e *cli.Env) error {
	env, found, err := settings.FromLauncher(settings.Process)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	op, err := findOperation(c.Operation)
	if err != nil {
		return err
	}
	ranks := defaultRanks
	switch {
	case found && c.Ranks != nil && *c.Ranks != env.Size:
		return cli.Usagef("--ranks %d, but the environment says %d (%s)", *c.Ranks, env.Size, env.Launcher)
	case found:
		ranks = env.Size
		// Join would notice too, but would not call it a usage error.
		if _, err := settings.Key(settings.Process); err != nil {
			return cli.Usagef("%v", err)
		}
	case c.Ranks != nil:
		ranks = *c.Ranks
	case op.Ranks > 0:
		ranks = op.Ranks * c.Subsets
	}
	job, err := c.job(op, ranks)
	if err != nil {
		return err
	}
	if found {
		return runRank(e, env.Rank, job)
	}
	if err := job.fits(ranks); err != nil {
		return err
	}
	if err := checkRaw(job.raw); err != nil {
		return err
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	watched, done := showProgress(e, job)
	err = watched.LaunchSelf(ranks, e.Args)
	done()
	return cmp.Or(signalled(ctx, err), err)
}
