package node

import (
	"cmp"
	"fmt"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// usable returns the window of a reduction that starts now. It returns 0 and the reason if the reduction must do
// without aggregators.
func (n *Node) usable(c *comm) (window uint32, why string) {
	switch a := &n.aggregators; {
	case a.Window == 0:
		return 0, cmp.Or(a.Why, "this rank has no aggregator")
	case c.retryAt > 0:
		return 0, "the aggregators did not deliver the sums of an earlier call in time"
	}
	return n.aggregators.Window, ""
}

// reducing is the state of a round that is a reduction by aggregators.
type reducing struct {
	window  uint32 // of the aggregators at the start
	why     string // reason why this rank cannot use its aggregators
	fetches int    // Fetch actions without an answer
}

// StartReduction starts a Reduce-Scatter by aggregators, or an Allreduce. Then holds the rounds of the Allgather that
// completes an Allreduce. Done returns req. All ranks of the job must be members of the communicator.
//
// The reductions of a communicator run one after the other, in the order of the calls. Other calls may overtake
// reductions that wait for their turn.
func (n *Node) StartReduction(
	now step.Time, comm uint32, req uint64, r *inc.Reduction, then []*mcast.Geometry,
) error {
	if err := r.Check(); err != nil {
		return err
	}
	if r.Size != n.cfg.Size {
		return fmt.Errorf("%w: %d, but aggregators serve all %d ranks of the job", ErrSize, r.Size, n.cfg.Size)
	}
	if (r.Kind == wire.Allreduce) != (len(then) > 0) || len(then) > 0 && then[0].Size() != r.Size {
		return fmt.Errorf("%w: the Allgather of an %v is wrong", ErrSize, r.Kind)
	}
	if c := n.comms[comm]; c != nil {
		c.checkRetry(now)
	}
	return n.startAs(now, comm, r.Rank, r.Size, &call{req: req, kind: r.Kind, inc: r, plan: then, rounds: 1 + len(then)})
}

// reduces reports whether the current or next round of a call is a reduction by aggregators.
func (k *call) reduces() bool { return k.inc != nil && k.round == 0 }

// geometry returns the geometry of the current or next round of a multicast.
func (k *call) geometry() *mcast.Geometry {
	if k.inc != nil {
		return k.plan[k.round-1]
	}
	return k.plan[k.round]
}

// waitsForTurn reports whether the next round of a call is a reduction, and an earlier reduction has not completed on
// this rank. An aggregator has slots for one reduction of a communicator at a time.
func (c *comm) waitsForTurn(k *call) bool { return k.reduces() && k.reduction != c.reduced }

// startReducing creates the operation of a reduction.
func (n *Node) startReducing(c *comm, st *round, open *Action) {
	k := st.call
	st.window, st.why = n.usable(c)
	st.inc = inc.New(inc.Config{
		Reduction: k.inc, Comm: c.id, Seq: st.seq, Window: st.window, Alpha: n.estimator(c).Alpha,
		Limits: n.cfg.Patience, Pace: c.expectedPace(k.inc.Chunk), Answers: c.answers,
		Batch: cmp.Or(n.cfg.Places, n.cfg.Batch),
	})
	st.op = st.inc
	open.Reduction, open.Number, open.Layout, open.Record = k.inc, k.reduction, st.inc.Layout(), st.inc.Record()
}

// estimator returns the measurements for a reduction of a communicator. Reductions measure no messages, so a
// communicator without other calls uses the measurements of another one with the same ranks.
func (n *Node) estimator(c *comm) *mcast.Estimator {
	for _, o := range n.order {
		if !c.est.Measured() && o.est.Measured() && len(o.members) == n.cfg.Size {
			return o.est
		}
	}
	return c.est
}

// expectedPace returns how long a place of a reduction takes, in 1/256 ns: as in the last reduction, or else twice as
// long as a chunk on the link, because other operations may share the link.
func (c *comm) expectedPace(chunk int) step.Time {
	if c.pace > 0 {
		return step.Time(c.pace * float64(chunk))
	}
	return 2 * 256 * (c.est.Slack(int64(chunk)) - c.est.Alpha())
}

// SetAggregation reports the state of this rank's aggregators. If they become unusable, the reductions that use them
// continue point to point.
func (n *Node) SetAggregation(now step.Time, a inc.Aggregation) {
	n.aggregators = a
	for _, c := range n.order {
		if c.broken != nil {
			continue
		}
		for _, st := range c.running() {
			if st.inc == nil || st.done || a.Window >= st.window {
				continue
			}
			if a.Window > 0 && st.inc.Narrow(a.Window) {
				st.window = a.Window
				continue
			}
			if st.window, st.why = 0, cmp.Or(a.Why, "this rank has no aggregator"); a.Window > 0 {
				st.why = "the window of the aggregators has changed"
			}
			n.execute(c, st, st.inc.Lost(now, n.steps[:0]))
		}
	}
}

// Summed reports that sums from an aggregator were added to the buffer and finished in the Record of their operation.
func (n *Node) Summed(now step.Time, comm uint32, seq uint64) {
	if c := n.comms[comm]; c != nil {
		if st := c.find(seq); st != nil && st.inc != nil {
			n.execute(c, st, st.inc.Summed(now, n.steps[:0]))
		}
	}
}

// Wanted reports that the aggregator misses a contribution which it was offered.
func (n *Node) Wanted(now step.Time, comm uint32, seq uint64, place uint32, try uint8) {
	if c := n.comms[comm]; c != nil && c.broken == nil {
		if st := c.find(seq); st != nil && st.inc != nil && !st.done {
			n.execute(c, st, st.inc.Wanted(now, place, try, n.steps[:0]))
		}
	}
}

// Fetched answers Fetch with the same PSN and N.
func (n *Node) Fetched(now step.Time, comm uint32, seq uint64, psn, chunks uint32) {
	c := n.comms[comm]
	if c == nil {
		return
	}
	st := c.find(seq)
	if st == nil || st.inc == nil || st.done || c.broken != nil {
		return
	}
	if bytes := st.fetchSize(chunks); st.fetches > 0 {
		st.fetches--
		n.others.Receive(now, bytes, 0, 0)
		n.others.End(0)
	}
	n.execute(c, st, st.inc.Step(now, step.Event{
		Kind: step.EvFetched, Ranges: []wire.Range{{PSN: psn, N: chunks}},
	}, n.steps[:0]))
}

// fetch asks the driver to fetch chunks. A multicast leaves it its part of the link.
func (n *Node) fetch(c *comm, st *round, a *step.Action) {
	bytes := st.fetchSize(a.N)
	n.others.Start(bytes, bytes)
	st.fetches++
	n.out = append(n.out, Action{Kind: Fetch, Comm: c.id, Seq: st.seq, PSN: a.PSN, N: a.N})
}

// fetchSize returns the number of bytes that a fetch reads from other ranks. It is never 0.
func (st *round) fetchSize(chunks uint32) int64 {
	r := st.call.inc
	return max(1, int64(chunks)*int64(r.Chunk)*int64(r.Size-1))
}

// endReducing stops counting the fetches of a reduction that has failed.
func (n *Node) endReducing(st *round) {
	for ; st.fetches > 0; st.fetches-- {
		n.others.End(1)
	}
}

// maxRepaired is the divisor for the part of its sums that a rank may fetch although it uses aggregators. A retry heals
// a loss, so a rank that fetches more has aggregators that do not work.
const maxRepaired = 8

// fewSums counts the sums of several reductions. Blocks with less than 2*maxRepaired sums are judged together, because
// one sum that a rank fetches is no proof.
type fewSums struct{ repaired, all uint64 }

// late reports whether a rank has fetched too many of its sums of a reduction that uses aggregators.
func (f *fewSums) late(repaired, all uint64) bool {
	const enough = 2 * maxRepaired
	if all >= enough {
		return repaired >= all/maxRepaired
	}
	f.repaired, f.all = f.repaired+repaired, f.all+all
	late := repaired > 0 && f.repaired >= max(2, f.all/maxRepaired)
	if late || f.all >= enough {
		*f = fewSums{}
	}
	return late
}

// completeReduction lets the next reduction start. If this rank found that sums did not come although it is connected
// to its aggregator, its communicator does not use the aggregators for a while. The other ranks then do not use them
// either. Other communicators go on: the aggregators may have no room for this one.
func (n *Node) completeReduction(c *comm, st *round) {
	c.reduced++
	k := st.call
	c.answers = st.inc.Answers()
	c.pace = float64(st.inc.Pace()) / float64(k.inc.Chunk)
	repaired, all := st.inc.Stats().Repaired, st.inc.Record().Len()
	late := !st.inc.FellBack() && c.few.late(repaired, uint64(all))
	if st.inc.Noticed() >= 0 || late {
		c.failures++
	}
	if !st.inc.FellBack() && !late {
		if st.inc.Aggregated() {
			c.failures = 0
		}
		return
	}
	switch noticed := st.inc.Noticed(); {
	case st.why != "":
		k.fallback = st.why
	case noticed == c.rank || !st.inc.FellBack():
		k.fallback = fmt.Sprintf("the aggregators did not deliver %d of %d sums in time", repaired, all)
		c.retryAt = st.op.Times().Done + n.retryAfter(c.failures)
	case noticed >= 0 && noticed < len(c.members):
		k.fallback = c.name(noticed) + " found that its aggregators do not work"
	default:
		k.fallback = "the aggregators of another rank cannot be used"
	}
}

// retryAfter returns for how long a communicator does not use aggregators that failed several times in a row.
func (n *Node) retryAfter(failures int) step.Time {
	after := cmp.Or(n.cfg.Retry, inc.RetryAfter)
	for limit := max(after, inc.MaxRetryAfter); failures > 1; failures-- {
		after = min(2*after, limit)
	}
	return after
}

// checkRetry lets reductions use the aggregators again after a while.
func (c *comm) checkRetry(now step.Time) {
	if now >= c.retryAt {
		c.retryAt = 0
	}
}

func (c *comm) retryTimer() step.Time {
	if c.retryAt == 0 {
		return step.Never
	}
	return c.retryAt
}
