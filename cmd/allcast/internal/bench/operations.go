package bench

import (
	"context"
	"slices"
	"strings"

	"github.com/allcast/allcast"
)

// Operation describes an operation that can be measured.
type Operation struct {
	Name       string
	Aliases    []string // names in nccl-tests and in OSU's benchmarks
	Size       string   // meaning of the size
	Flags      string   // flags of "allcast perf" that only some operations have
	Collective string   // argument of allcast.Algorithms; empty if there is no choice of algorithms
	Ranks      int      // only possible number of ranks; 0 for any

	reduces bool
	trips   int64 // times that the data crosses the network in one iteration, one after the other; 0 for 1
	// bus converts the algorithm's bandwidth to that of the busiest link, as nccl-tests do; nil for factor 1.
	bus    func(ranks float64) float64
	plan   func(shape) layout
	start  func(*call, *allcast.Group)
	finish func(context.Context, *call) error // second half of an exchange; nil if there is none
}

// Pair is both collectives at once. The name of a pair and of its algorithms joins those of its halves with a plus.
const Pair = "allgather+reduce-scatter"

const (
	sized    = "-b -e -f --overlap"
	rooted   = " --root"
	place    = " --inplace --both"
	reducing = " --dtype --reduce"
	several  = " --buffers"
)

// others is the share of the data that comes from other ranks.
func others(p float64) float64 { return (p - 1) / p }

// Operations lists all operations.
var Operations = []*Operation{
	{
		Name: "broadcast", Aliases: []string{"bcast", "osu_bcast"}, Collective: "broadcast",
		Size: "what the root sends", Flags: sized + rooted,
		plan: func(s shape) layout { return s.fromRoot(s.equal(s.root, 1), s.equal(s.root, 1)).shared(inputInRecv, 0) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartBroadcast(c.recv, c.Root, c.opts...))
		},
	},
	{
		Name: "allgather", Aliases: []string{"all_gather", "osu_allgather"}, Collective: "allgather",
		Size: "what one rank sends", Flags: sized + place, bus: others,
		plan: func(s shape) layout { return s.gather(s.same) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartAllgather(c.send, c.recv, c.opts...))
		},
	},
	{
		Name: "allgatherv", Aliases: []string{"osu_allgatherv"}, Collective: "allgather",
		Size: "what rank 0 sends" + uneven, Flags: sized + place, bus: others,
		plan: func(s shape) layout { return s.gather(s.uneven) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartAllgatherv(c.send, c.recv, c.counts(c.uneven), c.opts...))
		},
	},
	{
		Name: "gather", Aliases: []string{"osu_gather"}, Collective: "gather",
		Size: "what one rank sends", Flags: sized + rooted + place, bus: others,
		plan: func(s shape) layout { return s.toRoot(s.gather(s.same)) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartGather(c.send, c.recv, c.Root, c.opts...))
		},
	},
	{
		Name: "gatherv", Aliases: []string{"osu_gatherv"}, Collective: "gatherv",
		Size: "what rank 0 sends" + uneven, Flags: sized + rooted + place, bus: others,
		plan: func(s shape) layout { return s.toRoot(s.gather(s.uneven)) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartGatherv(c.send, c.recv, c.counts(c.uneven), c.Root, c.opts...))
		},
	},
	{
		Name: "scatter", Aliases: []string{"osu_scatter"}, Collective: "scatter",
		Size: "what one rank receives", Flags: sized + rooted + place, bus: others,
		plan: func(s shape) layout { return s.scatter(s.same) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartScatter(c.send, c.recv, c.Root, c.opts...))
		},
	},
	{
		Name: "scatterv", Aliases: []string{"osu_scatterv"}, Collective: "scatterv",
		Size: "what rank 0 receives" + uneven, Flags: sized + rooted + place, bus: others,
		plan: func(s shape) layout { return s.scatter(s.uneven) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartScatterv(c.send, c.recv, c.counts(c.uneven), c.Root, c.opts...))
		},
	},
	{
		Name: "reduce", Aliases: []string{"osu_reduce"}, Collective: "reduce", reduces: true,
		Size: "what one rank contributes, and the root receives", Flags: sized + rooted + place + reducing,
		plan: func(s shape) layout { return s.toRoot(s.combine()) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartReduce(c.send, c.recv, c.DType, c.Reduce, c.Root, c.opts...))
		},
	},
	{
		Name: "reduce-scatter", Aliases: []string{"reduce_scatter", "osu_reduce_scatter"},
		Collective: "reduce-scatter", reduces: true,
		Size: "what one rank receives", Flags: sized + place + reducing, bus: others,
		plan: func(s shape) layout { return s.reduceScatter(s.same) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartReduceScatter(c.send, c.output, c.DType, c.Reduce, c.opts...))
		},
	},
	{
		Name: "reduce-scatterv", Aliases: []string{"reduce_scatterv"}, Collective: "reduce-scatter", reduces: true,
		Size: "what rank 0 receives" + uneven, Flags: sized + place + reducing, bus: others,
		plan: func(s shape) layout { return s.reduceScatter(s.uneven) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartReduceScatterv(c.send, c.output, c.counts(c.uneven), c.DType, c.Reduce, c.opts...))
		},
	},
	{
		Name: "allreduce", Aliases: []string{"all_reduce", "osu_allreduce"}, Collective: "allreduce", reduces: true,
		Size: "what one rank contributes, and receives", Flags: sized + place + reducing,
		bus:  func(p float64) float64 { return 2 * others(p) },
		plan: shape.combine,
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartAllreduce(c.send, c.recv, c.DType, c.Reduce, c.opts...))
		},
	},
	{
		Name: "alltoall", Aliases: []string{"all_to_all", "osu_alltoall"}, Collective: "alltoall",
		Size: "what one rank sends to each rank", Flags: sized + place, bus: others,
		plan: func(s shape) layout { return s.exchange(s.same).shared(inputInRecv, 0) },
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartAlltoall(c.send, c.recv, c.opts...))
		},
	},
	{
		Name: "alltoallv", Aliases: []string{"osu_alltoallv"}, Collective: "alltoallv",
		Size: "what rank 0 sends to itself; rank i sends N(4 - (i+j) mod 4)/4 to rank j", Flags: sized, bus: others,
		plan: func(s shape) layout { return s.exchange(s.uneven) },
		start: func(c *call, g *allcast.Group) {
			counts := c.counts(func(j int) int64 { return c.uneven(c.rank + j) })
			g.Add(c.comm.StartAlltoallv(c.send, c.recv, counts, counts, c.opts...))
		},
	},
	{
		Name: "barrier", Aliases: []string{"osu_barrier"}, Collective: "barrier",
		Size: "nothing: it moves no data", Flags: "--overlap",
		plan:  func(shape) layout { return layout{} },
		start: func(c *call, g *allcast.Group) { g.Add(c.comm.StartBarrier(c.opts[0])) },
	},
	{
		Name: "sendrecv", Aliases: nil,
		Size: "what each rank sends to the next rank, while it receives from the previous one", Flags: sized,
		plan: func(s shape) layout {
			return layout{in: s.equal(s.rank, 1), out: s.equal((s.rank+s.ranks-1)%s.ranks, 1)}
		},
		start: func(c *call, g *allcast.Group) {
			if c.ranks == 1 {
				copy(c.recv, c.send) // a rank cannot send to itself
				return
			}
			g.Add(c.comm.StartRecv(c.recv, (c.rank+c.ranks-1)%c.ranks, 0))
			g.Add(c.comm.StartSend(c.send, (c.rank+1)%c.ranks, 0))
		},
	},
	{
		Name: "pingpong", Aliases: []string{"osu_latency"}, Ranks: 2, trips: 2,
		Size: "a message; the time is half of a round trip", Flags: "-b -e -f",
		plan: func(s shape) layout { return layout{in: s.equal(s.rank, 1), out: s.equal(1-s.rank, 1)} },
		start: func(c *call, g *allcast.Group) {
			if c.rank == 0 {
				g.Add(c.comm.StartSend(c.send, 1, 0))
			} else {
				g.Add(c.comm.StartRecv(c.recv, 0, 0))
			}
		},
		finish: func(ctx context.Context, c *call) (err error) {
			if c.rank == 0 {
				_, err = c.comm.Recv(ctx, c.recv, 1, 0)
				return err
			}
			return c.comm.Send(ctx, c.send, 0, 0)
		},
	},
	{
		Name: "stream", Aliases: []string{"osu_bw"}, Ranks: 2,
		Size:  "one of --buffers messages that rank 0 sends at once; rank 1 answers all with an empty one",
		Flags: "-b -e -f" + several,
		plan: func(s shape) layout {
			if s.rank == 0 {
				return layout{in: s.equal(0, s.buffers)}
			}
			return layout{out: s.equal(0, s.buffers)}
		},
		start: func(c *call, g *allcast.Group) {
			for i := range c.buffers {
				if c.rank == 0 {
					g.Add(c.comm.StartSend(c.sends[i], 1, 0))
				} else {
					g.Add(c.comm.StartRecv(c.recvs[i], 0, 0))
				}
			}
		},
		finish: func(ctx context.Context, c *call) (err error) {
			if c.rank == 0 {
				_, err = c.comm.Recv(ctx, nil, 1, 0)
				return err
			}
			return c.comm.Send(ctx, nil, 0, 0)
		},
	},
	{
		Name: "broadcast-coalesced", Aliases: []string{"broadcast_coalesced"}, Collective: "broadcast",
		Size: "one of --buffers buffers that the root sends", Flags: sized + rooted + several,
		plan: func(s shape) layout {
			return s.fromRoot(s.equal(s.root, s.buffers), s.equal(s.root, s.buffers)).shared(inputInRecv, 0)
		},
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartBroadcastCoalesced(c.recvs, c.Root, c.opts...))
		},
	},
	{
		Name: "allgather-coalesced", Aliases: []string{"allgather_coalesced"}, Collective: "allgather",
		Size: "one of --buffers buffers that one rank sends", Flags: sized + several, bus: others,
		plan: func(s shape) (l layout) {
			l.in = s.equal(s.rank, s.buffers)
			for i := range s.buffers {
				for r := range s.ranks {
					l.out = append(l.out, block{r, i, s.n})
				}
			}
			return l
		},
		start: func(c *call, g *allcast.Group) {
			g.Add(c.comm.StartAllgatherCoalesced(c.sends, c.recvs, c.opts...))
		},
	},
	{
		Name: Pair, reduces: true, bus: others, Flags: sized + place + reducing,
		Size: "what one rank sends in the Allgather and receives in the Reduce-Scatter",
	},
}

// uneven explains the sizes of operations whose blocks differ.
const uneven = "; block i has N(4 - i mod 4)/4"

// Find finds an operation by its name or an alias, with or without the suffix of nccl-tests; nil if there is none.
func Find(name string) *Operation {
	name = strings.TrimSuffix(name, "_perf")
	for _, o := range Operations {
		if o.Name == name || slices.Contains(o.Aliases, name) {
			return o
		}
	}
	return nil
}

// Takes reports whether a flag has an effect on the operation.
func (o *Operation) Takes(flag string) bool { return slices.Contains(strings.Fields(o.Flags), flag) }

// halves returns the operations that run at once.
func (o *Operation) halves() (ops []*Operation) {
	for name := range strings.SplitSeq(o.Name, "+") {
		ops = append(ops, Find(name))
	}
	return ops
}

// Algorithms lists the algorithms of each half of the operation, without auto.
func (o *Operation) Algorithms() (lists [][]string) {
	for _, half := range o.halves() {
		lists = append(lists, allcast.Algorithms(half.Collective))
	}
	return lists
}
