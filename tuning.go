package allcast

import (
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
	if algo == engine.Multicast && c.job.NoMulticast != "" && c.Size() > 1 {
		return choice{}, &NoMulticastError{Reason: c.job.NoMulticast}
	}
	return c.withChains(k, algo, bytes), nil
}

// firstUsable returns the first algorithm of a tuning rule that works on this network.
func (c *Comm) firstUsable(k wire.CallKind, algorithms []string, bytes int64) (choice, error) {
	for _, a := range algorithms {
		switch {
		case a == settings.AlgorithmAuto:
			return c.chooseAuto(k, bytes)
		case a != engine.Multicast || c.job.NoMulticast == "" || c.Size() == 1:
			return c.withChains(k, a, bytes), nil
		}
	}
	return choice{}, &NoMulticastError{Reason: c.job.NoMulticast}
}

// withChains completes a choice by the best number of chains.
func (c *Comm) withChains(k wire.CallKind, algo string, bytes int64) choice {
	if algo != engine.Multicast {
		return choice{algo: algo}
	}
	return choice{algo, c.job.measured.chains(k, c.Size(), bytes)}
}

// barrierAlgo needs no connections besides those of multicast.
const barrierAlgo = "recursive-doubling"

// chooseAuto chooses by the benchmark of Join, or else by the cost model. The model makes coarse assumptions about
// the network, which are the same on all ranks and in all runs.
func (c *Comm) chooseAuto(k wire.CallKind, bytes int64) (choice, error) {
	if k == wire.Barrier {
		return choice{algo: barrierAlgo}, nil
	}
	if s := c.job.measured.of(k, c.Size()); s != nil {
		return s.best(bytes), nil
	}
	chunk := int64(c.job.Caps().Chunk)
	if chunk == 0 {
		chunk = 1460
	}
	// A piece costs processor time, which the model does not count, so auto never cuts blocks into pieces.
	modelled, err := model.Choose(k.String(), max(2, c.Size()), bytes, model.Net{
		Rate: 1, Latency: 10e3, Message: 40e3, Hops: 2, Chunk: chunk, Datagram: int64(c.job.Caps().Overhead), Packet: 66,
		Multicast: c.job.NoMulticast == "", Eager: node.EagerLimit, Whole: true,
	})
	if err != nil {
		return choice{}, err
	}
	return c.withChains(k, modelled.Algo, bytes), nil
}
