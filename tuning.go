package allcast

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// auto is the algorithm that picks another one.
const auto = "auto"

// tuning is what ALLCAST_TUNING says: which algorithms to use for which sizes.
type tuning []rule

// rule is one entry: op[:from-to]:algo[,algo...].
type rule struct {
	kind     wire.CallKind
	from, to int64
	algos    []string // the first that works here is used; none does: an error
}

var kinds = map[string]wire.CallKind{
	"broadcast": wire.Broadcast, "allgather": wire.Allgather, "reduce-scatter": wire.ReduceScatter,
	"allreduce": wire.Allreduce, "barrier": wire.Barrier,
}

// Algorithms lists the algorithms that an operation ("broadcast", "allgather",
// "reduce-scatter", "allreduce" or "barrier") can be run with, besides "auto".
func Algorithms(operation string) []string {
	k, ok := kinds[operation]
	if !ok {
		return nil
	}
	list := p2p.Algorithms(k)
	if k == wire.Broadcast || k == wire.Allgather {
		list = append([]string{engine.Multicast}, list...)
	}
	return list
}

func parseTuning(s string) (tuning, error) {
	var t tuning
	for _, entry := range strings.Split(s, ";") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		r := rule{to: math.MaxInt64}
		fields := strings.Split(entry, ":")
		kind, ok := kinds[fields[0]]
		switch {
		case !ok:
			return nil, fmt.Errorf("%q: unknown operation %q: want broadcast, allgather, reduce-scatter, allreduce or barrier", entry, fields[0])
		case len(fields) != 2 && len(fields) != 3:
			return nil, fmt.Errorf("%q: want operation:algorithm or operation:from-to:algorithm, as in allgather:4K-inf:mcast,ring", entry)
		case len(fields) == 3:
			if err := r.sizes(fields[1]); err != nil {
				return nil, fmt.Errorf("%q: %w", entry, err)
			}
		}
		r.kind = kind
		for _, a := range strings.Split(fields[len(fields)-1], ",") {
			if a != auto && !slices.Contains(Algorithms(fields[0]), a) {
				return nil, fmt.Errorf("%q: unknown algorithm %q: want %s or auto", entry, a, strings.Join(Algorithms(fields[0]), ", "))
			}
			r.algos = append(r.algos, a)
		}
		t = append(t, r)
	}
	return t, nil
}

func (r *rule) sizes(s string) error {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return fmt.Errorf("sizes %q: want from-to, as in 4K-1M or 4K-inf", s)
	}
	var err error
	if r.from, err = size(from); err != nil {
		return err
	}
	if to != "inf" {
		if r.to, err = size(to); err != nil {
			return err
		}
	}
	if r.to < r.from {
		return fmt.Errorf("sizes %q: the first is larger than the second", s)
	}
	return nil
}

// choose settles which algorithm a call runs with, the same on all ranks.
func (c *Comm) choose(k wire.CallKind, algo string, bytes int64) (string, error) {
	if algo == "" || algo == auto {
		algo = auto
		for _, r := range c.job.tuning {
			if r.kind == k && bytes >= r.from && bytes <= r.to {
				return c.firstThatWorks(k, r, bytes)
			}
		}
	}
	if algo == auto {
		return c.cheapest(k, bytes)
	}
	if algo == engine.Multicast && c.job.NoMulticast != "" && c.Size() > 1 {
		return "", &NoMulticastError{Reason: c.job.NoMulticast}
	}
	return algo, nil
}

func (c *Comm) firstThatWorks(k wire.CallKind, r rule, bytes int64) (string, error) {
	for _, a := range r.algos {
		switch {
		case a == auto:
			return c.cheapest(k, bytes)
		case a != engine.Multicast || c.job.NoMulticast == "" || c.Size() == 1:
			return a, nil
		}
	}
	return "", &NoMulticastError{Reason: c.job.NoMulticast}
}

// barrierAlgo needs the fewest connections: those that multicast needs as well.
const barrierAlgo = "recursive-doubling"

// cheapest asks what Join has measured, or the cost model. What that assumes of an IP
// network is coarse, but the same on all ranks.
func (c *Comm) cheapest(k wire.CallKind, bytes int64) (string, error) {
	if k == wire.Barrier {
		return barrierAlgo, nil
	}
	if algo := c.job.measured.best(k, bytes); algo != "" {
		if k == wire.Broadcast && bytes > large || k == wire.Allgather && bytes*int64(c.Size()) > calibrateAll {
			return engine.Multicast, nil
		}
		return algo, nil
	}
	chunk := int64(c.job.Caps().Chunk)
	if chunk == 0 {
		chunk = 1460
	}
	pick, err := model.Choose(k.String(), max(2, c.Size()), bytes, model.Net{
		Rate: 1, Latency: 10e3, Hops: 2, Chunk: chunk, Datagram: int64(c.job.Caps().Overhead), Packet: 66, Multicast: c.job.NoMulticast == "",
		Eager: node.EagerLimit,
	})
	if err != nil {
		return "", err
	}
	return pick.Algo, nil
}
