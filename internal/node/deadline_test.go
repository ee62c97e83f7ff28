package node

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

func withDeadline(cfg Config, d step.Time) Config {
	cfg.Deadline = d
	return cfg
}

// A rank never makes a call. All others find it by asking which rank waits for which, and so does the
// rank itself. That holds for calls that wait behind the first ones too.
func TestDeadlineFindsWhoNeverCalled(t *testing.T) {
	for p := 2; p <= 9; p++ {
		for absent := range p {
			cfg := withDeadline(testConfig(), 5*ms)
			cfg.InFlight = 2
			c := world(t, p, cfg)
			done := c.call(0, allgather(p, 5, 4))
			c.Until("the first call", func() bool { return c.ended(done) })
			others := slices.Delete(upTo(p), absent, absent+1)
			var jobs []*job
			for range 4 {
				jobs = append(jobs, c.job(0, allgather(p, 5, 4)).on(others...))
			}
			began := c.Now
			c.Until("the end of all calls", func() bool { return c.ended(jobs...) })
			if took := c.Now - began; took < cfg.Deadline || took > cfg.Deadline+ms {
				t.Errorf("%d ranks, without %d: the calls ended after %d", p, absent, took)
			}
			c.finish()
			jobs[0].on(absent)
			c.allRight(done)
			c.allFailed(absent, []Reason{Deadline}, jobs...)
		}
	}
}

// The ranks make their calls at different times: the first rank whose deadline passes asks ranks whose
// deadline has not passed.
func TestDeadlineAtDifferentTimes(t *testing.T) {
	const p = 7
	for absent := range p {
		for first := range p {
			c := world(t, p, withDeadline(testConfig(), 5*ms))
			j := c.job(0, allgather(p, 5, 4))
			for i := range p {
				if r := (first + i) % p; r != absent {
					j.on(r)
					c.RunFor(300 * us)
				}
			}
			c.finish()
			c.allFailed(absent, []Reason{Deadline}, j)
		}
	}
}

// A rank that is silent is found, by its silence or because it does not answer,
// whichever comes first.
func TestDeadlineOfASilentRank(t *testing.T) {
	for p := 2; p <= 6; p++ {
		for victim := range p {
			for _, deadline := range []step.Time{ms, 9 * ms, 10 * ms, 50 * ms} {
				c := world(t, p, withDeadline(testConfig(), deadline))
				c.kill(false, victim)
				others := slices.Delete(upTo(p), victim, victim+1)
				j := c.job(0, allgather(p, 5, 4)).on(others...)
				c.finish()
				c.allFailed(victim, []Reason{Lost, Deadline}, j)
			}
		}
	}
}

// The deadline finds the rank without heartbeats too.
func TestDeadlineWithoutHeartbeats(t *testing.T) {
	cfg := withDeadline(testConfig(), 5*ms)
	cfg.Timeout = 0
	c := world(t, 5, cfg)
	j := c.job(0, allgather(5, 5, 4)).on(0, 1, 3, 4)
	c.finish()
	c.allFailed(2, []Reason{Deadline}, j)
	// It need not even answer.
	for victim := range 5 {
		c := world(t, 5, cfg)
		c.kill(false, victim)
		j := c.job(0, allgather(5, 5, 4)).on(slices.Delete(upTo(5), victim, victim+1)...)
		c.finish()
		c.allFailed(victim, []Reason{Deadline}, j)
	}
}

// A call cannot begin because its fabric does not report that the last user of its slot is drained. It
// waits for no rank, and the ranks that wait for it blame no rank either.
func TestDeadlineWhileTheSlotIsNotFree(t *testing.T) {
	for late := range 3 {
		c := world(t, 3, withDeadline(psnBits(testConfig(), 31), 5*ms))
		c.hosts[late].drains.Held = true
		good := []*job{c.call(0, allgather(3, 5, 4)), c.call(0, allgather(3, 5, 4))}
		stuck := c.call(0, allgather(3, 5, 4))
		c.finish()
		c.allRight(good...)
		c.allFailed(NoRank, []Reason{Deadline}, stuck)
	}
}

// Rank 1 waits for a lost chunk of rank 0, and takes it for lost only after the deadline. Rank 0 waits
// until rank 1 has it. No rank failed.
func TestDeadlineOfACircle(t *testing.T) {
	for p := 2; p <= 5; p++ {
		c := world(t, p, withDeadline(patient(testConfig()), 5*ms))
		c.fate = func(to int, _ *datagram) clustertest.Fate {
			if to == 1 {
				return clustertest.Lose
			}
			return clustertest.Deliver
		}
		j := c.call(0, broadcast(p, 0, 5, 4))
		c.finish()
		for r, s := range j.shares {
			if s.err != nil && (s.err.Culprit != NoRank || s.err.Reason != Deadline) || s.err == nil && r < 2 {
				t.Errorf("%d ranks, rank %d: %v", p, r, s.err)
			}
		}
	}
}

// Calls that end in time never meet their deadline, and no rank asks another.
func TestDeadlineNotOfCallsInTime(t *testing.T) {
	c := world(t, 5, withDeadline(testConfig(), 5*ms))
	for range 10 {
		jobs := []*job{c.call(0, allgather(5, 30, 4)), c.call(0, broadcast(5, 3, 100, 4))}
		c.RunFor(12 * ms)
		c.allRight(jobs...)
	}
	c.finish()
	for _, h := range c.hosts {
		if n := h.sends[wire.MsgProbeWait] + h.sends[wire.MsgWaitState]; n > 0 {
			t.Errorf("rank %d asked and answered %d times", h.ID, n)
		}
	}
}

// tooShort runs a call with a deadline that may be too short for it. All ranks made the call and work on
// it: no rank is at fault at any moment, also between rounds.
func tooShort(t *testing.T, deadline step.Time) (well bool) {
	t.Helper()
	c := world(t, 4, withDeadline(psnBits(testConfig(), 5), deadline))
	j := c.call(0, allgather(4, 300, 4)) // 10 rounds
	c.finish()
	for r, s := range j.shares {
		if s.err != nil && (s.err.Culprit != NoRank || s.err.Reason != Deadline) {
			t.Errorf("deadline %d ns, rank %d: %v", deadline, r, s.err)
		}
		well = well || s.err == nil
	}
	return well
}

func TestDeadlineTooShortBlamesNobody(t *testing.T) {
	t.Parallel()
	ended := map[bool]int{}
	for deadline := 50 * us; deadline < 3*ms; deadline += 60 * us {
		ended[tooShort(t, deadline)]++
	}
	if ended[true] == 0 || ended[false] == 0 {
		t.Errorf("ended well, or not: %v; the test tests too little", ended)
	}
}

// A rank that does not answer within a very short deadline has not failed: only silence for Timeout is a
// failure.
func TestDeadlineShorterThanARoundTripBlamesNobody(t *testing.T) {
	for _, deadline := range []step.Time{1, us, 5 * us, 10 * us, 20 * us} {
		tooShort(t, deadline)
	}
}
