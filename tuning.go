package allcast

import (
	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/wire"
)

// Algorithms lists the algorithms of an operation ("broadcast", "allgather", "reduce-scatter",
// "allreduce" or "barrier"), besides "auto".
func Algorithms(operation string) []string {
	k := settings.Operation(operation)
	if k == 0 {
		return nil
	}
	return settings.Algorithms(k)
}

// choose picks the algorithm of a call. It picks the same one on all ranks.
func (c *Comm) choose(k wire.CallKind, algo string, bytes int64) (string, error) {
	if algo == "" || algo == settings.AlgorithmAuto {
		if r := c.job.Settings.Rules.For(k, bytes); r != nil {
			return c.firstThatWorks(k, r.Algorithms, bytes)
		}
		return c.cheapest(k, bytes)
	}
	if algo == engine.Multicast && c.job.NoMulticast != "" && c.Size() > 1 {
		return "", &NoMulticastError{Reason: c.job.NoMulticast}
	}
	return algo, nil
}

func (c *Comm) firstThatWorks(k wire.CallKind, algorithms []string, bytes int64) (string, error) {
	for _, a := range algorithms {
		switch {
		case a == settings.AlgorithmAuto:
			return c.cheapest(k, bytes)
		case a != engine.Multicast || c.job.NoMulticast == "" || c.Size() == 1:
			return a, nil
		}
	}
	return "", &NoMulticastError{Reason: c.job.NoMulticast}
}

// barrierAlgo needs only connections that multicast needs as well.
const barrierAlgo = "recursive-doubling"

// cheapest picks an algorithm by the benchmark of Join, or else by the cost model. The model's assumptions
// about an IP network are coarse, but the same on all ranks.
func (c *Comm) cheapest(k wire.CallKind, bytes int64) (string, error) {
	if k == wire.Barrier {
		return barrierAlgo, nil
	}
	if algo := c.job.measured.best(k, bytes); algo != "" {
		if k == wire.Broadcast && bytes > large ||
			k == wire.Allgather && bytes*int64(c.Size()) > calibrateAll {
			return engine.Multicast, nil
		}
		return algo, nil
	}
	chunk := int64(c.job.Caps().Chunk)
	if chunk == 0 {
		chunk = 1460
	}
	pick, err := model.Choose(k.String(), max(2, c.Size()), bytes, model.Net{
		Rate: 1, Latency: 10e3, Hops: 2, Chunk: chunk, Datagram: int64(c.job.Caps().Overhead), Packet: 66,
		Multicast: c.job.NoMulticast == "", Eager: node.EagerLimit,
	})
	if err != nil {
		return "", err
	}
	return pick.Algo, nil
}
