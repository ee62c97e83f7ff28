package main

import (
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

type perfCmd struct {
	Operation string `arg:"" placeholder:"OPERATION" help:"broadcast, allgather, reduce-scatter, allreduce, barrier, or allgather+reduce-scatter: both at once."`

	Ranks  *int        `placeholder:"N" help:"Start so many local ranks (default 8), where no launcher has started us as one."`
	Algo   string      `default:"auto" placeholder:"LIST" help:"Algorithms to compare, separated by commas (default auto). For both at once, pairs: mcast+ring."`
	Min    *units.Size `name:"min" short:"b" placeholder:"MIN" help:"Smallest size (default 4K). Without -e, it is the only one."`
	Max    *units.Size `name:"max" short:"e" placeholder:"MAX" help:"Largest size (default 1M)."`
	Factor int         `short:"f" default:"4" placeholder:"FACTOR" help:"From one size to the next (default 4). After a size of 0 comes 1."`
	Iters  *int        `short:"n" placeholder:"ITERS" help:"Iterations that are measured (default 20)."`
	Warmup *int        `short:"w" placeholder:"WARMUP" help:"Iterations before them, not timed (default 0, so that all that crosses the network is reported)."`
	Check  int         `short:"c" default:"1" placeholder:"0|1" help:"Verify every iteration on all ranks (default 1)."`

	Root      int         `default:"0" placeholder:"R" help:"The rank that a Broadcast begins at (default 0)."`
	Chains    *int        `placeholder:"M" help:"Ranks that multicast at a time (default 1, beside a Reduce-Scatter all); more than the operation can use is clamped."`
	ChainBy   string      `default:"rank" placeholder:"rank|rack" help:"Chains of neighbouring ranks, as many as --chains says, or one a rack, by ALLCAST_RACK (default rank)."`
	Subgroups int         `default:"1" placeholder:"S" help:"Multicast groups (default 1); more than the operation can use is clamped."`
	Chunk     *units.Size `placeholder:"BYTES" help:"Payload of a datagram (default: the largest that fits the network). One that takes several packets is a super-packet with one header: less work, but all of it is lost with one of them."`
	InPlace   bool        `name:"inplace" help:"Send from the receive buffer, or receive in the send buffer."`
	DType     string      `name:"dtype" default:"f32" placeholder:"T" help:"Elements of a reduction: f32, f64, f16, bf16, i8 to i64, u8 to u64 (default f32)."`
	Reduce    string      `default:"sum" placeholder:"OP" help:"The reduction: sum, avg, min, max or prod (default sum)."`
	OSU       bool        `name:"osu" help:"OSU's method, as the paper used it: without -n and -w, 1000 iterations below 4K and 100 from there on, after 100 to warm up; a Broadcast is timed on its leaves."`
	Raw       *string     `placeholder:"FILE" help:"Also write the time of every rank and iteration to a CSV file, on rank 0's machine."`
	Overlap   bool        `help:"Also measure how much of the operation's time is left for computing, as OSU's benchmarks do."`

	Fabric   string `default:"" placeholder:"ip|verbs" help:"The network: ip, or verbs for InfiniBand and RoCE in a program built with that tag (default: ALLCAST_FABRIC, or ip)."`
	Device   string `default:"" placeholder:"D" help:"The verbs device and port, such as mlx5_0:1; several, separated by commas, are given to ranks in turn (default: ALLCAST_DEVICE, or the first that works)."`
	Datapath string `default:"" placeholder:"host|bpf|auto" help:"Who puts received data in place: host, each rank's process (default); bpf, the kernel, which needs CAP_BPF and CAP_PERFMON; auto, the kernel if it can. ALLCAST_DATAPATH says it too."`
	Hook     string `default:"" placeholder:"sockfilter|tcx|xdp" help:"Where the kernel looks at packets, with --datapath bpf or auto (default sockfilter); tcx and xdp need CAP_NET_ADMIN, too. ALLCAST_HOOK says it too."`

	Secure    bool `help:"Seal all that ranks send to each other (AES-GCM), so that nobody without the key can read or change it. ALLCAST_SECURE=on does it too."`
	Integrity bool `help:"Checksums on all that is sent, and of every result: what changed by accident, on the way or in memory, is found. ALLCAST_INTEGRITY=on does it too."`
}

func (perfCmd) Help() string {
	return `Measures and verifies a collective on the real network. Started by torchrun, mpirun, srun or "allcast run", it is one rank; else it starts --ranks local ones.

bytes is N of the paper: what one rank sends in an Allgather or Broadcast, what it receives in a Reduce-Scatter, the whole vector in an Allreduce. Reductions round it down to whole elements.

An iteration's time is that of the slowest rank, each from leaving a barrier to the operation's end: clocks of different machines cannot be compared. algbw is the bytes of the whole result (N times the ranks in Allgather and Reduce-Scatter) over the average time, busbw that times (P-1)/P, 2(P-1)/P for Allreduce, 1 for Broadcast, as in nccl-tests; in 1e9 bytes/s.

allgather+reduce-scatter starts both without waiting, each on a communicator of its own, and ends when both have: N is what one rank sends in the Allgather and receives in the Reduce-Scatter. algbw counts both results, 2NP bytes, and busbw is that times (P-1)/P: what a rank's link would carry in each direction if both were rings. sent_bytes and the like are of both together. Algorithms are pairs, Allgather's first; auto is auto+auto.

--osu leaves the root of a Broadcast out: an iteration's time is that of the slowest leaf, from leaving the barrier to having the data. Other operations are timed on all ranks. OSU's own benchmarks average over ranks; --raw has what that takes.

--overlap does the operation alone, then computes for as long as that took on average, alone and between start and wait: overlap_pct is 100(1 - (both - computing)/operation), from 0 to 100, of averages over all ranks, as in OSU's non-blocking benchmarks. But they compute for a time, and we do an amount of work that takes that time alone: what the operation takes from the processor then counts against it.

--raw has a line for each rank and measured iteration: rank,op,algo,bytes,iteration,start_ns,duration_ns. The start is in ns since 1970 by that rank's clock, after the barrier. The root of a Broadcast is in it too, with --osu as well; what --overlap and -w add is not. The file appears when the job is done.

sent_bytes and mcast_bytes are what the busiest rank handed to the network per operation, our headers included. chunks_total (datagrams that multicast had to deliver), dropped_chunks, duplicate_chunks, copied_chunks, corrupt_chunks (that --integrity or --secure found), repaired_bytes and wrong (bytes) are summed over ranks and iterations. CPU times are per operation, averaged over ranks.

Contributions are different in every iteration, so that what is left of an earlier one is wrong. Reductions are compared with the exact result, which for sums of floats is one of whole numbers that need no rounding; products with one in float64, within 2(P-1)u of it, and averages within 2u, where u is half a unit in the last place of the type (2^-24 for f32).

Examples:
  allcast perf allgather --ranks 8 --algo mcast,ring -b 1M
  allcast perf allgather+reduce-scatter --algo mcast+ring,ring+ring -b 1M
  allcast perf broadcast --osu --algo mcast,binomial -b 1K -e 1M --raw times.csv
  allcast perf reduce-scatter --dtype bf16 -b 1K -e 4M -f 8 --json
  allcast perf allgather --secure -b 1M
  sudo allcast perf broadcast --ranks 4 --datapath bpf --hook tcx -b 64M -n 5
  mpirun -n 64 allcast perf allgather --fabric verbs --device mlx5_0:1 --algo mcast,ring -b 1M
  mpirun -n 4 allcast perf broadcast --algo mcast,binomial`
}

// perfRanks is how many local ranks perf and demo start.
const perfRanks = 8

func (c *perfCmd) Run(a *app) error {
	env, found, err := settings.FromLauncher(settings.Process)
	if err != nil {
		return usagef("%v", err)
	}
	ranks := perfRanks
	switch {
	case found && c.Ranks != nil && *c.Ranks != env.Size:
		return usagef("--ranks %d, but the environment says %d (%s)", *c.Ranks, env.Size, env.Launcher)
	case found:
		ranks = env.Size
		// Join would refuse a bad key too, but only after the ranks have started.
		if _, err := settings.Key(settings.Process); err != nil {
			return usagef("%v", err)
		}
	case c.Ranks != nil:
		ranks = *c.Ranks
	}
	job, err := c.job(ranks)
	if err != nil {
		return err
	}
	if !found {
		if err := job.fits(ranks); err != nil {
			return err
		}
		if err := checkRaw(job.raw); err != nil {
			return err
		}
		return a.self(ranks, a.args)
	}
	return a.perfRank(env.Rank, job)
}
