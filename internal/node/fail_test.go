package node

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// A rank dies at every moment, with calls that run, that wait for their turn, that are between rounds,
// and that have completed. Each ends once, after its buffers are quiet, with a complete error (the
// cluster checks both at every Done). Calls that completed have their data.
func TestEveryCallEndsOnce(t *testing.T) {
	t.Parallel()
	const p, victim = 4, 2
	failed, completed := map[step.Phase]int{}, 0
	for k := range 150 {
		cfg := psnBits(testConfig(), 5) // 32 PSNs
		cfg.InFlight = 2
		c := world(t, p, cfg)
		var jobs []*job
		for _, s := range []mcast.Shape{
			allgather(p, 3, 4), broadcast(p, 1, 10, 4), allgather(p, 100, 4), broadcast(p, victim, 300, 4), allgather(p, 8, 4),
		} {
			jobs = append(jobs, c.call(0, s))
		}
		for range 6 * k {
			c.Step()
		}
		c.kill(k%2 == 0, victim)
		c.finish()
		c.onlyBlame([]int{victim}, jobs...)
		for _, j := range jobs {
			for r, s := range j.shares {
				switch {
				case r == victim:
				case s.err == nil:
					completed++
				default:
					failed[s.err.Phase]++
				}
			}
		}
	}
	for _, phase := range []step.Phase{step.Queued, step.Barrier, step.Multicast} {
		if failed[phase] == 0 {
			t.Errorf("no call failed in the %v phase: the test tests too little: %v", phase, failed)
		}
	}
	if completed == 0 {
		t.Error("no call completed")
	}
}

// From Quiesce on nothing touches the buffers (checked by the cluster), and the
// call is over only when the driver has said that they are quiet.
func TestQuiesceBeforeDone(t *testing.T) {
	c := world(t, 3, testConfig())
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 1 && d.psn == 2 {
			return clustertest.Keep // lost to begin with, so that there is a read
		}
		return clustertest.Deliver
	}
	c.hosts[1].reads.Held, c.hosts[1].sent.Held, c.hosts[1].quiet.Held = true, true, true
	j := c.call(0, allgather(3, 16, 4))
	c.Until("a read", func() bool { return c.hosts[1].reads.Len() > 0 })
	queued := c.job(0, allgather(3, 16, 4)).on(1) // also runs, in its barrier
	c.abort(0, 0)
	c.RunFor(50 * ms)
	for _, j := range []*job{j, queued} {
		s := j.shares[1]
		if s.ended || s.rounds[0].state != revoked {
			t.Fatalf("ended %v before its buffers were quiet, state %d", s.ended, s.rounds[0].state)
		}
	}
	c.hosts[1].reads.Held, c.hosts[1].sent.Held = false, false
	c.fate = nil
	c.release(nil) // late datagrams, completions and reads change nothing
	c.RunFor(ms)
	if c.ended(j) {
		t.Fatal("ended before its buffers were quiet")
	}
	c.hosts[1].quiet.Held = false
	c.finish()
	c.allFailed(0, []Reason{Aborted}, j, queued)
	// A second Quiesced does not end it again.
	for _, seq := range []uint64{0, 1, 2} {
		c.hosts[1].node.Quiesced(0, seq)
		c.hosts[1].node.Quiesced(7, seq)
		if c.hosts[1].act() {
			t.Errorf("Quiesced(%d) had an effect", seq)
		}
	}
}

// After the break every call fails at once.
func TestCallsAfterTheBreakFailAtOnce(t *testing.T) {
	c := world(t, 3, psnBits(testConfig(), 4))
	c.abort(1, 0)
	c.RunFor(ms)
	for r := range 3 {
		for range 3 {
			j := c.job(0, allgather(3, 100, 4)).on(r) // of several rounds
			c.allFailed(1, []Reason{Aborted}, j)
			if e := j.shares[r].err; e.Phase != step.Queued || e.Missing != "everything" {
				t.Errorf("rank %d: %v", r, e)
			}
		}
	}
}

func TestAbortReachesAllMembers(t *testing.T) {
	for p := 1; p <= 9; p++ {
		for by := range p {
			c := newCluster(t, p+1, testConfig())
			members := upTo(p + 1)[1:] // shifted, so that world ranks differ from those of the communicator
			c.comm(6, members...)
			c.comm(2, upTo(p+1)...)
			done := c.call(6, allgather(p, 5, 4))
			c.Until("the first call", func() bool { return c.ended(done) })
			j := c.job(6, allgather(p, 5, 4)).on(members[1:]...) // one has not called
			c.abort(members[by], 6)
			c.Until("the abort everywhere", func() bool {
				return !slices.ContainsFunc(members, func(r int) bool { return c.hosts[r].node.comms[6].broken == nil })
			})
			c.finish()
			c.abort(members[by], 6) // again
			j.on(members[0])
			c.allRight(done)
			if p > 1 {
				c.allFailed(members[by], []Reason{Aborted}, j)
			}
			other := c.call(2, allgather(p+1, 5, 4))
			c.finish()
			c.allRight(other)
		}
	}
}

// A member that does not know the communicator yet drops the abort; it learns of
// it when it has added the communicator and makes a call.
func TestAbortBeforeAddComm(t *testing.T) {
	c := newCluster(t, 3, testConfig())
	members := upTo(3)
	c.comms[4] = members
	for _, r := range members[:2] {
		if err := c.hosts[r].node.AddComm(4, members); err != nil {
			t.Fatal(err)
		}
	}
	c.abort(1, 4)
	c.RunFor(ms)
	if err := c.hosts[2].node.AddComm(4, members); err != nil {
		t.Fatal(err)
	}
	j := c.job(4, allgather(3, 5, 4)).on(2)
	c.finish()
	c.allFailed(1, []Reason{Aborted}, j)
}

// One rank makes another call than the others. No rank completes it.
func TestMismatchedCallsFailEverywhere(t *testing.T) {
	for p := 2; p <= 6; p++ {
		base := func() mcast.Shape { return broadcast(p, 0, 20, 4) }
		variants := map[string]func() mcast.Shape{
			"root":      func() mcast.Shape { return broadcast(p, 1, 20, 4) },
			"size":      func() mcast.Shape { return broadcast(p, 0, 21, 4) },
			"nothing":   func() mcast.Shape { return broadcast(p, 0, 0, 4) },
			"rounds":    func() mcast.Shape { return broadcast(p, 0, 20*16, 4) },
			"chunk":     func() mcast.Shape { return broadcast(p, 0, 20, 5) },
			"subgroups": func() mcast.Shape { s := base(); s.Subgroups = 2; return s },
			"operation": func() mcast.Shape { s := base(); s.Kind = wire.Allgather; return s },
		}
		for name, variant := range variants {
			for odd := range p {
				t.Run(fmt.Sprintf("%s/%d of %d", name, odd, p), func(t *testing.T) {
					c := world(t, p, psnBits(testConfig(), 4))
					good := c.call(0, base())
					c.Until("the first call", func() bool { return c.ended(good) })
					jobs := []*job{c.job(0, base()).on(slices.Delete(upTo(p), odd, odd+1)...), c.job(0, variant()).on(odd)}
					c.finish()
					c.allRight(good)
					suspects := append(mcast.AppendPeers(nil, odd, p), odd)
					for _, j := range jobs {
						for r, s := range j.shares {
							if s.err == nil || s.err.Reason != Mismatch || !slices.Contains(suspects, s.err.Culprit) {
								t.Errorf("rank %d: %v", r, s.err)
							}
						}
					}
				})
			}
		}
	}
}

// A rank finds the mismatch in an early message, in the same step in which the call before it completes
// and closes. Each of these must happen once.
func TestMismatchInAnEarlyMessage(t *testing.T) {
	cfg := patient(testConfig())
	cfg.InFlight = 1
	c := world(t, 3, cfg)
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 1 && d.seq == 0 {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
	first := c.call(0, broadcast(3, 0, 8, 4))
	jobs := []*job{c.job(0, broadcast(3, 0, 8, 4)).on(0, 1), c.job(0, broadcast(3, 0, 9, 4)).on(2)}
	c.Until("an early message", func() bool { return c.hosts[0].node.comms[0].early.count > 0 })
	c.release(nil) // rank 1 now tells rank 0 that it has everything
	c.finish()
	c.allRight(first)
	for _, j := range jobs {
		for r, s := range j.shares {
			if s.err == nil || s.err.Reason != Mismatch {
				t.Errorf("rank %d: %v", r, s.err)
			}
		}
	}
}
