package allcast

import (
	"cmp"
	"fmt"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

// Algorithms lists the algorithms of an operation, without "auto". The operations are "broadcast", "allgather",
// "gather", "gatherv", "scatter", "scatterv", "alltoall", "alltoallv", "reduce", "reduce-scatter", "allreduce" and
// "barrier"; Allgatherv and ReduceScatterv have the algorithms of "allgather" and "reduce-scatter". It returns
// nil for other names.
func Algorithms(operation string) []string {
	k := settings.Operation(operation)
	if k == 0 {
		return nil
	}
	return settings.Algorithms(k)
}

// choose returns how a call runs, the same on all ranks. A number of chains that the caller sets overrides it.
func (c *Comm) choose(k wire.CallKind, algo string, bytes int64) (choice, error) {
	if algo == "" || algo == settings.AlgorithmAuto {
		if r := c.job.Settings.Rules.For(k, bytes); r != nil {
			return c.firstUsable(k, r.Algorithms, bytes)
		}
		return c.chooseAuto(k, bytes)
	}
	if err := settings.CheckAlgorithm(k, algo); err != nil {
		return choice{}, invalid("%v", err)
	}
	if err := c.missing(k, algo); err != nil {
		return choice{}, err
	}
	return c.withChains(k, algo, bytes), nil
}

// missing returns an error if the network lacks what an algorithm requires. Aggregators that do not work at the moment
// are not missing, because calls then run point to point.
func (c *Comm) missing(k wire.CallKind, algo string) error {
	if c.Size() == 1 {
		return nil
	}
	if algo == engine.Inc {
		switch {
		case c.job.Aggregation.Off != "":
			return &NoAggregationError{Reason: c.job.Aggregation.Off}
		case c.Size() != c.job.Settings.Size:
			return &NoAggregationError{Reason: fmt.Sprintf("they serve communicators of all %d ranks of the job, and this one "+
				"has %d", c.job.Settings.Size, c.Size())}
		}
	}
	if c.job.NoMulticast != "" && (algo == engine.Multicast || algo == engine.Inc && k == wire.Allreduce) {
		return &NoMulticastError{Reason: c.job.NoMulticast}
	}
	return nil
}

// aggregates reports whether auto may use aggregators on this communicator. All ranks agree.
func (c *Comm) aggregates(k wire.CallKind) bool {
	return c.job.Aggregation.Usable() && c.Size() > 1 && c.missing(k, engine.Inc) == nil
}

// firstUsable returns the first algorithm of a tuning rule that works on this network.
func (c *Comm) firstUsable(k wire.CallKind, algorithms []string, bytes int64) (choice, error) {
	var first error
	for i, a := range algorithms {
		if a == settings.AlgorithmAuto {
			return c.chooseAuto(k, bytes)
		}
		err := c.missing(k, a)
		// Aggregators that did not work when the ranks joined are a last resort.
		if err == nil && (a != engine.Inc || c.aggregates(k) || i == len(algorithms)-1) {
			return c.withChains(k, a, bytes), nil
		}
		first = cmp.Or(first, err)
	}
	return choice{}, first
}

// withChains completes a choice by the best number of chains.
func (c *Comm) withChains(k wire.CallKind, algo string, bytes int64) choice {
	if algo != engine.Multicast {
		return choice{algo: algo}
	}
	return c.balanced(k, choice{algo, c.job.measured.chains(k, c.Size(), bytes)})
}

// balanced makes all ranks send at once in an Allgather, where the job has aggregators: a reduction by aggregators
// needs the links of all ranks evenly, and would wait for the rank whose turn it is.
func (c *Comm) balanced(k wire.CallKind, how choice) choice {
	if k == wire.Allgather && how.algo == engine.Multicast && c.job.Aggregation.Usable() {
		how.chains = c.Size()
	}
	return how
}

// barrierAlgo needs no connections besides those of multicast.
const barrierAlgo = "recursive-doubling"

// chooseAuto chooses by the benchmark of Join, or else by the cost model. The model makes coarse assumptions about
// the network, which are the same on all ranks and in all runs. A connection takes some 200 us of both ranks'
// processors; ten calls share it.
func (c *Comm) chooseAuto(k wire.CallKind, bytes int64) (choice, error) {
	if k == wire.Barrier {
		return choice{algo: barrierAlgo}, nil
	}
	if s := c.job.measured.of(k, c.Size()); s != nil {
		best := s.best(bytes)
		if best.algo != settings.AlgorithmAuto && (best.algo != engine.Inc || c.missing(k, engine.Inc) == nil) {
			return c.balanced(k, best), nil
		}
	}
	chunk := int64(c.job.Caps().Chunk)
	if chunk == 0 {
		chunk = 1460
	}
	// A piece costs processor time, which the model does not count, so auto never cuts blocks into pieces.
	modelled, err := model.Choose(k.String(), max(2, c.Size()), bytes, model.Net{
		Rate: 1, Latency: 10e3, Message: 40e3, Connect: 20e3, Hops: 2, Chunk: chunk,
		Datagram: int64(c.job.Caps().Overhead), Packet: 66,
		Multicast: c.job.NoMulticast == "", Eager: node.EagerLimit, Whole: true,
	})
	if err != nil {
		return choice{}, err
	}
	return c.withChains(k, modelled.Algo, bytes), nil
}
