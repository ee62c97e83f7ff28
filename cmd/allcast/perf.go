package main

import (
	"os"

	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/units"
)

type perfCmd struct {
	Operation string `arg:"" placeholder:"OPERATION" help:"broadcast, allgather, reduce-scatter, allreduce or barrier."`

	Ranks  *int        `placeholder:"N" help:"Start so many local ranks (default 8), where no launcher has started us as one."`
	Algo   string      `default:"auto" placeholder:"LIST" help:"Algorithms to compare, separated by commas (default auto)."`
	Min    *units.Size `name:"min" short:"b" placeholder:"MIN" help:"Smallest size (default 4K). Without -e, it is the only one."`
	Max    *units.Size `name:"max" short:"e" placeholder:"MAX" help:"Largest size (default 1M)."`
	Factor int         `short:"f" default:"4" placeholder:"FACTOR" help:"From one size to the next (default 4). After a size of 0 comes 1."`
	Iters  int         `short:"n" default:"20" placeholder:"ITERS" help:"Iterations that are measured (default 20)."`
	Warmup int         `short:"w" default:"0" placeholder:"WARMUP" help:"Iterations before them, not timed (default 0, so that all that crosses the network is reported)."`
	Check  int         `short:"c" default:"1" placeholder:"0|1" help:"Verify every iteration on all ranks (default 1)."`

	Root      int         `default:"0" placeholder:"R" help:"The rank that a Broadcast begins at (default 0)."`
	Chains    int         `default:"1" placeholder:"M" help:"Ranks that multicast at a time (default 1); more than the operation can use is clamped."`
	ChainBy   string      `default:"rank" placeholder:"rank|rack" help:"Chains of neighbouring ranks, as many as --chains says, or one a rack, by ALLCAST_RACK (default rank)."`
	Subgroups int         `default:"1" placeholder:"S" help:"Multicast groups (default 1); more than the operation can use is clamped."`
	Chunk     *units.Size `placeholder:"BYTES" help:"Payload of a datagram (default: the largest that fits the network)."`
	InPlace   bool        `name:"inplace" help:"Send from the receive buffer, or receive in the send buffer."`
	DType     string      `name:"dtype" default:"f32" placeholder:"T" help:"Elements of a reduction: f32, f64, f16, bf16, i8 to i64, u8 to u64 (default f32)."`
	Reduce    string      `default:"sum" placeholder:"OP" help:"The reduction: sum, avg, min, max or prod (default sum)."`
	Overlap   bool        `help:"Also measure how much of the operation's time is left for computing, as OSU's benchmarks do."`

	Fabric   string `default:"ip" placeholder:"ip" help:"The network (default ip)."`
	Datapath string `default:"auto" placeholder:"host|auto" help:"Where datagrams are handled (default auto)."`
	Hook     string `default:"" hidden:"" help:"Of the bpf datapath."`
	Secure   bool   `hidden:"" help:"Encrypt."`
}

func (perfCmd) Help() string {
	return `Measures and verifies a collective on the real network. Started by torchrun, mpirun, srun or "allcast run", it is one rank; else it starts --ranks local ones.

bytes is N of the paper: what one rank sends in an Allgather or Broadcast, what it receives in a Reduce-Scatter, the whole vector in an Allreduce. Reductions round it down to whole elements.

An iteration's time is that of the slowest rank, each from leaving a barrier to the operation's end: clocks of different machines cannot be compared. algbw is the bytes of the whole result (N times the ranks in Allgather and Reduce-Scatter) over the average time, busbw that times (P-1)/P, 2(P-1)/P for Allreduce, 1 for Broadcast, as in nccl-tests; in 1e9 bytes/s.

sent_bytes and mcast_bytes are what the busiest rank handed to the network per operation, our headers included. chunks_total (datagrams that multicast had to deliver), dropped_chunks, duplicate_chunks, copied_chunks, repaired_bytes and wrong (bytes) are summed over ranks and iterations. CPU times are per operation, averaged over ranks.

Contributions are different in every iteration, so that what is left of an earlier one is wrong. Reductions are compared with the exact result, which for sums of floats is one of whole numbers that need no rounding; products with one in float64, within 2(P-1)u of it, and averages within 2u, where u is half a unit in the last place of the type (2^-24 for f32).

Examples:
  allcast perf allgather --ranks 8 --algo mcast,ring -b 1M
  allcast perf reduce-scatter --dtype bf16 -b 1K -e 4M -f 8 --json
  mpirun -n 4 allcast perf broadcast --algo mcast,binomial`
}

// perfRanks is how many local ranks perf and demo start.
const perfRanks = 8

func (c *perfCmd) Run(a *app) error {
	env, found, err := rendezvous.FromEnv(os.LookupEnv)
	if err != nil {
		return usagef("%v", err)
	}
	ranks := perfRanks
	switch {
	case found && c.Ranks != nil && *c.Ranks != env.Size:
		return usagef("--ranks %d, but the environment says %d (%s)", *c.Ranks, env.Size, env.Launcher)
	case found:
		ranks = env.Size
		// Join would find out too, but not that it is the user's to mend.
		if _, err := rendezvous.Key(os.LookupEnv); err != nil {
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
		return a.self(ranks, a.args)
	}
	return a.perfRank(job)
}
