package node

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// TestAnythingGoes runs several communicators over the same processes, in a random order of events: with
// many calls, losses, deaths, an abort, a pause, a rank that does not call and one that makes another
// call. Every call ends once: with the right data, or with an error that names a rank that really failed.
func TestAnythingGoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, anythingGoes)
}

func anythingGoes(t *rapid.T) {
	p := rapid.IntRange(2, 7).Draw(t, "P")
	c := newCluster(t, p, drawConfig(t))
	c.randomly(rapid.Uint64().Draw(t, "seed"), clustertest.Faults{
		Loss:      rapid.SampledFrom([]float64{0, 0, 0.02, 0.3}).Draw(t, "loss"),
		Duplicate: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "duplicate"),
	})
	guilty := map[uint32][]blame{}
	for id := range uint32(rapid.IntRange(1, 3).Draw(t, "communicators")) {
		members := rapid.Permutation(upTo(p)).Draw(t, "members")
		c.comm(id, members[:rapid.IntRange(1, p).Draw(t, "size")]...)
		guilty[id] = drawCalls(t, c, id)
	}
	for _, w := range drawTrouble(t, c) {
		for range w.after {
			c.Step()
		}
		for id, b := range w.strike() {
			guilty[id] = append(guilty[id], b)
		}
	}
	c.finish()
	for _, j := range c.jobs {
		for r, s := range j.shares {
			fits := func(b blame) bool { return b.fits(s.err) }
			if !c.hosts[r].Dead && s.err != nil && !slices.ContainsFunc(guilty[j.comm], fits) {
				t.Fatalf("request %d on rank %d: %v\nguilty: %v", j.req, r, s.err, guilty[j.comm])
			}
		}
	}
}

// blame is an error that is allowed.
type blame struct {
	reason  Reason
	culprit []int
}

func (b blame) fits(e *Error) bool {
	return e.Reason == b.reason && slices.Contains(b.culprit, e.Culprit)
}

func drawConfig(t *rapid.T) Config {
	cfg := psnBits(testConfig(), rapid.SampledFrom([]int{0, 4, 5, 29, 30, 31}).Draw(t, "PSN bits"))
	cfg.InFlight = rapid.IntRange(1, 4).Draw(t, "in flight")
	cfg.Deadline = 2 * step.Second
	if rapid.Bool().Draw(t, "credit") {
		cfg.Flow, cfg.Room = mcast.FlowCredit, rapid.Uint64Range(1, 20).Draw(t, "room")
	}
	return cfg
}

// drawCalls queues calls on a communicator. In the last one, a rank may make no call or another call.
func drawCalls(t *rapid.T, c *cluster, id uint32) []blame {
	members := c.comms[id]
	p := len(members)
	for range rapid.IntRange(1, 6).Draw(t, "calls") {
		j := c.job(id, drawShape(t, p))
		for _, m := range members {
			c.hosts[m].later(j)
		}
	}
	how := rapid.SampledFrom([]string{
		"all is well", "all is well", "all is well", "one does not call", "one calls something else",
	}).Draw(t, "how")
	if how == "all is well" || p == 1 {
		return nil
	}
	odd := rapid.IntRange(0, p-1).Draw(t, "which")
	j := c.job(id, allgather(p, 11, 4))
	for i, m := range members {
		if i != odd {
			c.hosts[m].later(j)
		}
	}
	if how == "one does not call" {
		return []blame{{Deadline, []int{members[odd]}}}
	}
	c.hosts[members[odd]].later(c.job(id, allgather(p, 12, 4)))
	b := blame{Mismatch, []int{members[odd]}}
	for _, r := range mcast.AppendPeers(nil, odd, p) {
		b.culprit = append(b.culprit, members[r])
	}
	return []blame{b}
}

func drawShape(t *rapid.T, p int) mcast.Shape {
	s := mcast.Shape{
		Kind: wire.Allgather, Counts: make([]int64, p), Chunk: rapid.IntRange(1, 9).Draw(t, "chunk"),
		Chains: rapid.IntRange(1, p).Draw(t, "M"), Subgroups: rapid.IntRange(1, 3).Draw(t, "S"),
		Streams: rapid.IntRange(0, p).Draw(t, "T"),
	}
	size := rapid.Int64Range(0, 60)
	if rapid.Bool().Draw(t, "broadcast") {
		s.Kind, s.Root = wire.Broadcast, rapid.IntRange(0, p-1).Draw(t, "root")
		s.Counts[s.Root] = 3 * size.Draw(t, "bytes")
		return s
	}
	for i := range s.Counts {
		s.Counts[i] = size.Draw(t, "bytes")
	}
	return s
}

// trouble is a fault that strikes after some events. It returns the errors that are allowed after it, by
// communicator.
type trouble struct {
	after  int
	strike func() map[uint32]blame
}

func drawTrouble(t *rapid.T, c *cluster) (all []trouble) {
	victims := rapid.Permutation(upTo(len(c.hosts))).Draw(t, "victims")
	for i := range rapid.IntRange(0, 3).Draw(t, "troubles") {
		if i == len(victims)-1 {
			break // one survives
		}
		rank := victims[i]
		w := trouble{after: rapid.IntRange(0, 600).Draw(t, "after")}
		switch kind := rapid.SampledFrom([]string{"silent", "reset", "abort", "pause"}).Draw(t, "trouble"); kind {
		case "pause":
			w.strike = func() map[uint32]blame {
				c.freeze(rank, c.cfg.Timeout/2)
				return nil
			}
		case "abort":
			w.strike = func() map[uint32]blame { return c.abortAll(rank) }
		default:
			w.strike = func() map[uint32]blame {
				c.kill(kind == "reset", rank)
				return c.blames(rank, Lost)
			}
		}
		all = append(all, w)
	}
	return all
}

// abortAll aborts all communicators of a rank.
func (c *cluster) abortAll(rank int) map[uint32]blame {
	b := c.blames(rank, Aborted)
	for id := range uint32(len(c.comms)) {
		if _, member := b[id]; member {
			c.abort(rank, id)
		}
	}
	return b
}

// blames is what a rank may be blamed for on its communicators.
func (c *cluster) blames(rank int, why Reason) map[uint32]blame {
	all := map[uint32]blame{}
	for id, members := range c.comms {
		if slices.Contains(members, rank) {
			all[id] = blame{why, []int{rank}}
		}
	}
	return all
}

func (b blame) String() string { return fmt.Sprintf("%v %v", b.reason, b.culprit) }
