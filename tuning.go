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

// choose returns the algorithm of a call, the same on all ranks.
func (c *Comm) choose(k wire.CallKind, algo string, bytes int64) (string, error) {
	if algo == "" || algo == settings.AlgorithmAuto {
		if r := c.job.Settings.Rules.For(k, bytes); r != nil {
			return c.firstUsable(k, r.Algorithms, bytes)
		}
		return c.chooseAuto(k, bytes)
	}
	if err := settings.CheckAlgorithm(k, algo); err != nil {
		return "", invalid("%v", err)
	}
	if algo == engine.Multicast && c.job.NoMulticast != "" && c.Size() > 1 {
		return "", &NoMulticastError{Reason: c.job.NoMulticast}
	}
	return algo, nil
}

// firstUsable returns the first algorithm of a tuning rule that works on this network.
func (c *Comm) firstUsable(k wire.CallKind, algorithms []string, bytes int64) (string, error) {
	for _, a := range algorithms {
		switch {
		case a == settings.AlgorithmAuto:
			return c.chooseAuto(k, bytes)
		case a != engine.Multicast || c.job.NoMulticast == "" || c.Size() == 1:
			return a, nil
		}
	}
	return "", &NoMulticastError{Reason: c.job.NoMulticast}
}

// barrierAlgo needs no connections besides those of multicast.
const barrierAlgo = "recursive-doubling"

// chooseAuto chooses an algorithm by the benchmark of Join, or else by the cost model. The model makes coarse
// assumptions about the network, which are the same on all ranks.
func (c *Comm) chooseAuto(k wire.CallKind, bytes int64) (string, error) {
	if k == wire.Barrier {
		return barrierAlgo, nil
	}
	if algo := c.job.measured.best(k, bytes); algo != "" {
		if k == wire.Broadcast && bytes > largeBroadcast ||
			k == wire.Allgather && bytes*int64(c.Size()) > largeAllgather {
			return engine.Multicast, nil
		}
		return algo, nil
	}
	chunk := int64(c.job.Caps().Chunk)
	if chunk == 0 {
		chunk = 1460
	}
	choice, err := model.Choose(k.String(), max(2, c.Size()), bytes, model.Net{
		Rate: 1, Latency: 10e3, Hops: 2, Chunk: chunk, Datagram: int64(c.job.Caps().Overhead), Packet: 66,
		Multicast: c.job.NoMulticast == "", Eager: node.EagerLimit,
	})
	if err != nil {
		return "", err
	}
	return choice.Algo, nil
}
