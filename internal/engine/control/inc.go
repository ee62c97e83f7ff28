package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Inc is the name of the algorithm of package inc.
const Inc = "inc"

// ErrNoAggregation is the error of calls that need aggregators on a communicator without them.
var ErrNoAggregation = errors.New("there are no aggregators")

// contributions is the number of places that the node asks the datapath to send at a time. It asks for the next ones
// while these are sent, so they must take longer than this process may wait for a processor.
const contributions = 64

// patience bounds how long a rank waits for sums. Each try takes twice as long as the one before, so that all of them
// outlast a rank or an aggregator that does not have its turn on a busy machine.
var patience = inc.Limits{Tries: 6, Silent: 2 * step.Second}

// planInc completes the plan of a call whose sums aggregators make. An Allreduce is a Reduce-Scatter and a multicast
// Allgather of its result.
func (c *Control) planInc(m *plan, g *group) error {
	k, rank, size := &m.call, g.Rank, len(g.Members)
	if k.Kind != wire.ReduceScatter && k.Kind != wire.Allreduce {
		return fmt.Errorf("%w: %v has no algorithm %q", ErrCall, k.Kind, k.Algo)
	}
	if size == 1 { // there is nothing to send
		ring := newPlan(k)
		ring.call.Algo, ring.bytes = "ring", m.bytes
		if err := ring.planP2P(rank, size); err != nil {
			return err
		}
		m.p2p = ring.p2p
		return nil
	}
	r := &c.cfg.Reduction
	switch {
	case r.Aggregators == nil:
		return ErrNoAggregation
	case size != c.cfg.Size:
		return fmt.Errorf("%w for a communicator of %d of the job's %d ranks", ErrNoAggregation, size, c.cfg.Size)
	}
	counts := k.Counts
	if k.Kind == wire.Allreduce {
		counts = split(m.bytes, size, int64(k.Type.Size()))
		then := &plan{call: Call{
			Kind: wire.Allgather, Algo: Multicast, Counts: counts, Chunk: k.Chunk, Subgroups: k.Subgroups, Groups: k.Groups,
			Chains: k.Chains,
		}}
		if k.Chains == 0 {
			then.call.Chains = size
		}
		if err := c.planMulticast(then, size, 0); err != nil {
			return err
		}
		m.rounds, m.info = then.rounds, then.info
	}
	m.reduction = &inc.Reduction{
		Rank: rank, Size: size, Kind: k.Kind, Counts: counts, Chunk: r.Chunk, Type: uint16(k.Type)<<8 | uint16(k.Op),
		Tree: r.Tree.Digest(),
	}
	if err := m.reduction.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	m.info.Algo = Inc
	m.info.Chunk = r.Chunk
	m.info.Chunks += uint64(inc.NewLayout(counts, r.Chunk).Places())
	return nil
}

// split divides a buffer into blocks of whole elements that differ by one element at most.
func split(bytes int64, blocks int, element int64) []int64 {
	counts := make([]int64, blocks)
	elements := bytes / element
	for i := range counts {
		n := int64(blocks)
		counts[i] = (elements*int64(i+1)/n - elements*int64(i)/n) * element
	}
	return counts
}

// SetAggregation reports the state of this rank's aggregators.
func (c *Control) SetAggregation(a inc.Aggregation) {
	c.submit(func() {
		if !c.is(running) {
			return
		}
		// The warning comes with the first call that this concerns: the aggregators also lose a job whose ranks leave.
		if a.Window == 0 && c.leaving == nil {
			c.cfg.Logger.Info("aggregators cannot be used at the moment", "reason", a.Why)
		}
		c.node.SetAggregation(c.now(), a)
		c.act()
	})
}

// fellBack logs that reductions go point to point, once until one uses aggregators again. One warning per job is
// enough.
func (c *Control) fellBack(why string) {
	if c.noAggregation || c.leaving != nil {
		return
	}
	c.noAggregation = true
	level := slog.LevelWarn
	if c.cfg.Rank != 0 {
		level = slog.LevelInfo
	}
	r := &c.cfg.Reduction
	args := []any{"reason", why, "retry", cmp.Or(r.Retry, time.Duration(inc.RetryAfter))}
	if !names(why, r.Tree) {
		// Any aggregator of the tree may be at fault. This one is where to look first.
		node, _ := r.Tree.Server(c.cfg.Rank)
		args = append(args, "aggregator", r.Tree.Nodes[node].Addr)
	}
	c.cfg.Logger.Log(context.Background(), level, "aggregators cannot be used: reductions by inc run point to point, "+
		"with the same result, until they work again", args...)
}

// names reports whether a reason names an aggregator.
func names(why string, tree *inc.Tree) bool {
	return slices.ContainsFunc(tree.Nodes, func(n inc.TreeNode) bool { return strings.Contains(why, n.Addr) })
}

// reduced takes note of how a reduction ended. A call that failed, or that had nothing to add up on this rank, does not
// show that aggregators work.
func (c *Control) reduced(k *call, fallback string, failed bool) {
	k.req.fallback = fallback
	r := k.reduction
	switch {
	case r == nil:
	case fallback != "":
		c.obs.TraceFallback()
		c.fellBack(fallback)
	case c.noAggregation && !failed && r.Counts[r.Rank] > 0:
		c.noAggregation = false
		c.cfg.Logger.Info("reductions by inc use aggregators again")
	}
}
