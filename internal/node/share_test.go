package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/mcast"
)

// Communicators with different members in different orders share the room of their processes for
// datagrams, which is far too small for all of them. All calls complete, and all of the room is returned
// (finish checks that).
func TestCommunicatorsShareThePool(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		cfg := testConfig()
		cfg.Flow, cfg.Room = mcast.FlowCredit, 1+seed%5
		c := newCluster(t, 6, cfg)
		c.randomly(seed, clustertest.Faults{Loss: 0.1 * float64(seed%2), Duplicate: 0.05 * float64(seed%2)})
		c.comm(1, 0, 1, 2, 3, 4, 5)
		c.comm(2, 5, 3, 1)
		c.comm(3, 2, 0)
		c.comm(4, 4, 5, 0, 2)
		c.comm(5, 3)
		for i := range uint32(15) {
			id := 1 + i%5
			p := len(c.comms[id])
			s := allgather(p, int64(7*i), 5)
			s.Chains, s.Subgroups = 1+int(i)%p, 1+int(i)%3
			if i%4 == 0 {
				s = broadcast(p, int(i)%p, 150, 5)
			}
			j := c.job(id, s)
			for _, m := range c.comms[id] {
				c.hosts[m].later(j)
			}
		}
		c.finish()
		c.allRight(c.jobs...)
	}
}

// A stuck operation holds its room, and no other operation waits for that. Here the datagrams of one
// communicator do not arrive.
func TestAStuckOperationDoesNotStarveOthers(t *testing.T) {
	cfg := patient(testConfig())
	cfg.Flow, cfg.Room = mcast.FlowCredit, 1
	c := newCluster(t, 3, cfg)
	c.comm(0, 0, 1, 2)
	c.comm(1, 2, 1, 0)
	c.fate = keepOps(0, 1)
	stuck := []*job{c.call(0, allgather(3, 40, 4)), c.call(0, allgather(3, 40, 4))}
	free := []*job{c.call(0, allgather(3, 40, 4)), c.call(1, allgather(3, 40, 4)), c.call(1, broadcast(3, 1, 100, 4))}
	c.Until("the others", func() bool { return c.ended(free...) })
	if c.hosts[0].node.pool.Lent() == 0 {
		t.Error("the stuck operations hold no room: the test tests nothing")
	}
	c.fate = nil
	c.release(nil)
	c.finish()
	c.allRight(append(stuck, free...)...)
}

// A failed operation returns its room too, also while it waits in its barrier or lingers.
func TestPoolComesBackAfterAFailure(t *testing.T) {
	for k := range 90 {
		cfg := testConfig()
		cfg.Flow, cfg.Room = mcast.FlowCredit, 3
		c := newCluster(t, 4, cfg)
		c.comm(0, upTo(4)...)
		c.comm(1, 0, 1)
		c.fate = func(to int, d *datagram) clustertest.Fate {
			if k%3 > 0 && to != 2 && d.psn%3 == 2 {
				return clustertest.Lose
			}
			return clustertest.Deliver
		}
		bad := []*job{c.call(0, allgather(4, 30, 4)), c.call(0, broadcast(4, 2, 30, 4))}
		bad = append(bad, c.job(0, allgather(4, 1, 1)).on(0, 1, 3))
		for range 3 * k {
			c.Step()
		}
		c.kill(k%2 == 0, 2)
		good := c.call(1, allgather(2, 50, 4))
		c.finish() // checks the pools
		c.allRight(good)
		for _, j := range bad {
			for r, s := range j.shares {
				if r != 2 && s.err != nil && (s.err.Culprit != 2 || s.err.Reason != Lost) {
					t.Fatalf("killed after %d events, rank %d: %v", 3*k, r, s.err)
				}
			}
		}
		c.allFailed(2, []Reason{Lost}, bad[2])
	}
}
