package node

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// learned reports whether all living ranks know of these deaths.
func (c *cluster) learned(dead ...int) bool {
	for _, h := range c.hosts {
		for _, d := range dead {
			if !h.Dead && !slices.Contains(h.lost, d) {
				return false
			}
		}
	}
	return true
}

func TestHeartbeatsWhenIdle(t *testing.T) {
	for p := 1; p <= 6; p++ {
		c := newCluster(t, p, testConfig())
		c.RunFor(50 * c.cfg.Timeout)
		for _, h := range c.hosts {
			beats := h.sends[wire.MsgHeartbeat]
			if p > 1 && (beats < 4*50-1 || beats > 4*50+1) || p == 1 && beats > 0 {
				t.Errorf("%d ranks: rank %d sent %d heartbeats in 50 timeouts, want 4 in each", p, h.ID, beats)
			}
			h.sends[wire.MsgHeartbeat] = 0
			if len(h.lost) > 0 || h.sends != [256]int{} {
				t.Errorf("%d ranks: idle rank %d lost %v and sent %v", p, h.ID, h.lost, h.sends)
			}
		}
	}
}

// Without a timeout no rank watches another, and nothing needs a timer.
func TestNoTimeoutNoHeartbeats(t *testing.T) {
	cfg := testConfig()
	cfg.Timeout = 0
	c := world(t, 3, cfg)
	for _, h := range c.hosts {
		if at := h.node.NextTimer(); at != step.Never {
			t.Errorf("rank %d wants its timer at %d", h.ID, at)
		}
		h.node.Timer(c.Now + 1000*step.Second)
		if h.act() {
			t.Errorf("rank %d did something", h.ID)
		}
	}
}

// The right neighbour notices a silent process, after Timeout and no sooner. All ranks know soon after
// that.
func TestSilentProcessIsLost(t *testing.T) {
	for p := 2; p <= 9; p++ {
		for victim := range p {
			c := newCluster(t, p, testConfig())
			c.RunFor(3*c.cfg.Timeout + 100*us)
			c.kill(false, victim)
			killed, right := c.Now, c.hosts[(victim+1)%p]
			c.Until("a death being noticed", func() bool {
				return slices.ContainsFunc(c.hosts, func(h *host) bool { return len(h.lost) > 0 })
			})
			if !slices.Equal(right.lost, []int{victim}) {
				t.Errorf("%d ranks: rank %d died and its right neighbour was not the first to know", p, victim)
			}
			if took := c.Now - killed; took < c.cfg.Timeout*3/4-ms || took > c.cfg.Timeout+ms {
				t.Errorf("%d ranks: noticed after %d", p, took)
			}
			noticed := c.Now
			c.Until("all ranks learning of it", func() bool { return c.learned(victim) })
			if c.Now-noticed > ms {
				t.Errorf("%d ranks: the news took %d", p, c.Now-noticed)
			}
			c.RunFor(10 * c.cfg.Timeout) // and no other rank is ever blamed
		}
	}
}

func TestPeerLostCountsAtOnce(t *testing.T) {
	cfg := testConfig()
	cfg.Timeout = 1000 * step.Second
	c := world(t, 5, cfg)
	j := c.job(0, allgather(5, 10, 4)).on(0, 1, 2, 4)
	c.RunFor(ms)
	c.kill(true, 3)
	killed := c.Now
	c.Until("the end of the call", func() bool { return c.ended(j) })
	c.allFailed(3, []Reason{Lost}, j)
	if !c.learned(3) || c.Now-killed > ms {
		t.Errorf("learned %v, after %d", c.learned(3), c.Now-killed)
	}
	// Telling a rank again changes nothing, and a rank that does not exist cannot be lost.
	for _, r := range []int{3, -1, 5, 1 << 40} {
		c.hosts[0].node.PeerLost(c.Now, r)
		if c.hosts[0].act() {
			t.Errorf("PeerLost(%d) had an effect", r)
		}
	}
}

// Ranks wait for a rank that makes no call as long as it sends heartbeats.
func TestNoCallIsNotSilence(t *testing.T) {
	c := world(t, 4, testConfig())
	j := c.job(0, allgather(4, 10, 4)).on(0, 1, 3)
	c.RunFor(100 * c.cfg.Timeout)
	if c.hurt {
		t.Fatal("something failed")
	}
	j.on(2)
	c.finish()
	c.allRight(j)
}

// A process that was stopped for less than the timeout is not lost. It blames no rank for messages that
// it did not read meanwhile.
func TestStoppedForLessThanTheTimeout(t *testing.T) {
	for p := 2; p <= 4; p++ {
		c := world(t, p, testConfig())
		for range 5 {
			beats := &c.hosts[1].sends[wire.MsgHeartbeat]
			before := *beats
			c.Until("a heartbeat", func() bool { return *beats > before })
			c.freeze(1, c.cfg.Timeout*9/10)
		}
		j := c.call(0, allgather(p, 10, 4))
		c.finish()
		c.allRight(j)
	}
}

// A process is stopped, and as soon as it runs again its right neighbour is, both
// for much less than the timeout. The heartbeats of the one are there when the
// other runs again, unread: it has not been silent for the timeout.
func TestStoppedOneAfterTheOther(t *testing.T) {
	for watcher := ms; watcher < 7*ms; watcher += 100 * us {
		c := newCluster(t, 3, testConfig())
		beats := &c.hosts[1].sends[wire.MsgHeartbeat]
		c.Until("a heartbeat", func() bool { return *beats == 2 })
		c.RunFor(5 * us) // it is heard
		c.freeze(1, c.cfg.Timeout+50*us-watcher)
		c.Until("a heartbeat", func() bool { return *beats == 3 })
		c.freeze(2, watcher)
		c.RunFor(3 * c.cfg.Timeout) // the cluster checks at every Drop that no rank blames a living one
	}
}

// However long a node was stopped, it does not blame its neighbour for that. First it has to read the
// messages that came meanwhile.
func TestStoppedForLongBlamesNobody(t *testing.T) {
	cfg := testConfig()
	cfg.Rank, cfg.Size = 1, 3
	for _, long := range []step.Time{cfg.Timeout, 3 * cfg.Timeout, 1000 * cfg.Timeout} {
		now := step.Second
		n := New(now, cfg)
		for range 10 {
			now = n.NextTimer()
			n.Timer(now)
			n.Message(now, 0, &wire.Msg{Kind: wire.MsgHeartbeat})
		}
		now += long
		n.Timer(now)
		if n.live.dead[0] {
			t.Errorf("stopped for %d: the left neighbour is taken for lost at once", long)
		}
		// If there was nothing to read, the neighbour is lost soon.
		noticed := now
		for !n.live.dead[0] && now < noticed+2*cfg.Timeout {
			now = n.NextTimer()
			n.Timer(now)
		}
		if took := now - noticed; took <= 0 || took > cfg.Timeout {
			t.Errorf("stopped for %d: the left neighbour's silence was noticed after %d", long, took)
		}
	}
}

// A process that was stopped for longer than the timeout is out. When it runs again, it learns that and
// fails its own calls with itself as the culprit. It blames no other rank, then or later.
func TestStoppedForTooLongIsOut(t *testing.T) {
	for p := 2; p <= 6; p++ {
		for victim := range p {
			c := world(t, p, testConfig())
			c.hurt = true
			out := c.job(0, allgather(p, 10, 4)).on(victim)
			c.freeze(victim, 3*c.cfg.Timeout)
			c.RunFor(10 * c.cfg.Timeout)
			later := c.job(0, allgather(p, 10, 4)).on(victim)
			c.allFailed(victim, []Reason{Lost}, out, later)
			for _, h := range c.hosts {
				if h.ID == victim && len(h.lost) > 0 || h.ID != victim && !slices.Equal(h.lost, []int{victim}) {
					t.Errorf("rank %d of %d was too late: rank %d has lost %v", victim, p, h.ID, h.lost)
				}
			}
			fresh := c.job(0, allgather(p, 10, 4)).on((victim + 1) % p)
			c.allFailed(victim, []Reason{Lost}, fresh)
		}
	}
}

// A new communicator on a process that is out has the same culprit.
func TestNewCommunicatorOnAProcessThatIsOut(t *testing.T) {
	c := newCluster(t, 4, testConfig())
	c.freeze(2, 3*c.cfg.Timeout)
	c.RunFor(10 * c.cfg.Timeout)
	c.comm(9, 1, 2, 3)
	c.allFailed(2, []Reason{Lost}, c.call(9, allgather(3, 10, 4)))
}

// Data is a sign of life, and the driver may tell of it after a heartbeat that came later. The older
// sign changes nothing: the peer still has its full time, and a doubt about it remains.
func TestAnOldSignOfLifeChangesNothing(t *testing.T) {
	cfg := testConfig()
	cfg.Rank, cfg.Size, cfg.Timeout = 1, 2, step.Second
	for _, times := range []int{0, 1, 1000} {
		n := New(0, cfg)
		signs := times
		lostAt := step.Time(0)
		for now := step.Time(0); lostAt == 0 && now < 5*step.Second; now += 10 * ms {
			if now == 240*ms {
				n.Message(now, 0, &wire.Msg{Kind: wire.MsgHeartbeat})
			}
			if now >= 240*ms && signs > 0 {
				n.Heard(10*ms, 0)
				signs--
			}
			n.Timer(now)
			for _, a := range n.Actions() {
				if a.Kind == Drop {
					lostAt = now
				}
			}
		}
		if want := 240*ms + cfg.Timeout; lostAt < want || lostAt > want+cfg.Timeout/8 {
			t.Errorf("%d old signs: lost at %d ms (0: never), want soon after %d ms", times, lostAt/ms, want/ms)
		}
	}
}
