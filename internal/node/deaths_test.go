package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
)

// longestRun is the length of the longest run of dead neighbours on the ring.
func longestRun(p int, dead []int) (n int) {
	for _, first := range dead {
		run := 1
		for slices.Contains(dead, (first+run)%p) {
			run++
		}
		n = max(n, run)
	}
	return n
}

// spread checks that every survivor learns of every death in bounded time. The cluster checks at every
// Drop that no rank blames a living one.
func (c *cluster) spread(dead ...int) {
	c.T.Helper()
	p, killed := len(c.hosts), c.Now
	c.Until(fmt.Sprintf("the survivors of %v dying among %d learning of it",
		dead, p), func() bool { return c.learned(dead...) })
	// A survivor goes through the run to its left one after the other.
	if most := step.Time(longestRun(p, dead))*(c.cfg.Timeout+ms) + 2*ms; c.Now-killed > most {
		c.Failf("%v died among %d: all ranks knew after %d, want at most %d", dead, p, c.Now-killed, most)
	}
	c.RunFor(3 * c.cfg.Timeout)
	for _, h := range c.hosts {
		if !h.Dead && len(h.lost) != len(dead) {
			c.Failf("%v died among %d: rank %d lost %v", dead, p, h.ID, h.lost)
		}
	}
}

func TestSeveralDieAtOnce(t *testing.T) {
	for _, tc := range []struct {
		p    int
		dead []int
	}{
		{5, []int{0, 3}}, // rank 4 then has no living peer on ring and barrier edges
		{3, []int{0, 1}},
		{4, []int{1, 2, 3}},
		{6, []int{2, 3}},
		{8, []int{0, 4, 6}},
		{16, []int{0, 1, 15}},
		{33, []int{0, 31, 16}},
		{12, []int{0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11}},
	} {
		for _, reset := range []bool{false, true} {
			c := world(t, tc.p, testConfig())
			j := c.call(0, allgather(tc.p, 10, 4))
			c.kill(reset, tc.dead...)
			c.spread(tc.dead...)
			c.finish()
			c.onlyBlame(tc.dead, j)
		}
	}
}

// onlyBlame checks that the jobs ended on all survivors, well or with an error
// that names one of the dead.
func (c *cluster) onlyBlame(dead []int, jobs ...*job) {
	c.T.Helper()
	for _, j := range jobs {
		for r, s := range j.shares {
			if !c.hosts[r].Dead && (!s.ended || s.err != nil && (s.err.Reason != Lost || !slices.Contains(dead,
				s.err.Culprit))) {
				c.Failf("%v died among %d: rank %d ended %v: %v", dead, len(c.hosts), r, s.ended, s.err)
			}
		}
	}
}

// TestAnyDieAtOnce goes through every set of dead ranks of every small world:
// silent or with their connections closed, before the first call and at different
// moments of it.
func TestAnyDieAtOnce(t *testing.T) {
	t.Parallel()
	most := 9
	if testing.Short() {
		most = 6
	}
	for p := 2; p <= most; p++ {
		for set := 1; set < 1<<p-1; set++ {
			var dead []int
			for r := range p {
				if set>>r&1 == 1 {
					dead = append(dead, r)
				}
			}
			c := world(t, p, testConfig())
			first := c.call(0, allgather(p, 5, 4))
			for range set * 5 % (p * 20) {
				c.Step()
			}
			c.kill(set%3 == 0, dead...)
			c.spread(dead...)
			living := slices.DeleteFunc(upTo(p), func(r int) bool { return slices.Contains(dead, r) })
			second := c.job(0, broadcast(p, 0, 5, 4)).on(living...)
			c.finish()
			c.onlyBlame(dead, first, second)
			for _, r := range living {
				if second.shares[r].err == nil {
					t.Fatalf("%v died among %d: a later call completed on rank %d", dead, p, r)
				}
			}
		}
	}
}

// A second rank dies while the others notice and spread the first death.
func TestAnotherDiesMeanwhile(t *testing.T) {
	t.Parallel()
	const p = 6
	for pair := range p * p {
		a, b := pair/p, pair%p
		if a == b {
			continue
		}
		for after := range 12 {
			c := world(t, p, testConfig())
			j := c.call(0, allgather(p, 5, 4))
			c.RunFor(100 * us)
			c.kill(after%2 == 0, a)
			c.RunFor(step.Time(after) * c.cfg.Timeout / 8)
			c.kill(after%3 == 0, b)
			c.spread(a, b)
			c.finish()
			c.onlyBlame([]int{a, b}, j)
		}
	}
}

// A death does not affect a communicator without the dead rank, in any phase.
func TestOtherCommunicatorsGoOn(t *testing.T) {
	for k := range 40 {
		cfg := testConfig()
		cfg.Flow, cfg.Room = mcast.FlowCredit, 8
		c := newCluster(t, 6, cfg)
		c.comm(0, upTo(6)...)
		c.comm(1, 5, 0, 2)
		c.comm(2, 1, 4)
		c.comm(3, 3)
		bad := c.call(0, allgather(6, 30, 4))
		good := []*job{c.call(1, allgather(3, 30, 4)), c.call(1, broadcast(3, 1, 30, 4)), c.call(3, allgather(1, 9, 4))}
		hurt := c.job(2, allgather(2, 5, 4)).on(4)
		for range 4 * k {
			c.Step()
		}
		c.kill(k%2 == 0, 1)
		good = append(good, c.call(1, allgather(3, 60, 4)))
		c.finish()
		good = append(good, c.call(1, broadcast(3, 2, 60, 4)))
		c.finish()
		c.allRight(good...)
		c.onlyBlame([]int{1}, bad)
		c.allFailed(1, []Reason{Lost}, hurt)
	}
}
