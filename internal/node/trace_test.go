package node

import (
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Rank 1 is still in an earlier round because rank 2 misses a chunk, while rank 0
// waits for it in the next. It has made the call, and is not to blame.
func TestTraceOfAnEarlierRound(t *testing.T) {
	c := world(t, 3, withDeadline(psnBits(patient(testConfig()), 4), 5*ms))
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 2 && d.seq == 1 {
			return clustertest.Lose
		}
		return clustertest.Deliver
	}
	j := c.job(0, broadcast(3, 0, 3*16, 1)).on(0)
	c.RunFor(ms) // so that rank 0 asks first
	j.on(1, 2)
	c.Until("rank 0 being ahead", func() bool { return len(j.shares[0].rounds) == 3 })
	c.finish()
	for r, s := range j.shares {
		if s.err == nil || s.err.Reason != Deadline || s.err.Culprit != NoRank {
			t.Errorf("rank %d: %v", r, s.err)
		}
	}
}

// The answer arrives when its round is over on rank 2, which then asks again about the next round. Rank 0
// did answer, and is not to blame.
func TestTraceOfARoundThatIsOver(t *testing.T) {
	cfg := withDeadline(psnBits(patient(testConfig()), 4), 5*ms)
	cfg.Timeout = 2 * ms
	c := world(t, 3, cfg)
	c.fate = func(to int, _ *datagram) clustertest.Fate {
		if to == 2 {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
	j := c.job(0, broadcast(3, 0, 3*16, 1)).on(2)
	c.RunFor(4900 * us) // so that only rank 2 asks
	j.on(0, 1)
	c.Until("the question", func() bool { return c.hosts[2].sends[wire.MsgProbeWait] == 1 })
	c.hosts[2].inbox[0].Held = true
	c.release(nil)
	c.Until("the next round", func() bool { return len(j.shares[2].rounds) == 2 })
	c.hosts[2].inbox[0].Held = false
	c.finish()
	for r, s := range j.shares {
		if s.err == nil || s.err.Reason != Deadline || s.err.Culprit != NoRank {
			t.Errorf("rank %d: %v", r, s.err)
		}
	}
}

// The same with a call that waits behind another one on rank 1.
func TestTraceOfACallThatWaits(t *testing.T) {
	cfg := withDeadline(patient(testConfig()), 5*ms)
	cfg.InFlight = 1
	c := world(t, 3, cfg)
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 2 && d.seq == 0 {
			return clustertest.Lose
		}
		return clustertest.Deliver
	}
	jobs := []*job{c.job(0, broadcast(3, 0, 5, 4)).on(0), c.job(0, broadcast(3, 0, 5, 4)).on(0)}
	c.RunFor(ms) // so that rank 0 asks first
	for _, j := range jobs {
		j.on(1, 2)
	}
	c.Until("rank 0 being ahead", func() bool { return len(jobs[1].shares[0].rounds) == 1 })
	c.finish()
	for _, j := range jobs {
		for r, s := range j.shares {
			if s.err != nil && (s.err.Reason != Deadline || s.err.Culprit != NoRank) {
				t.Errorf("rank %d: %v", r, s.err)
			}
		}
	}
	if jobs[0].shares[0].err != nil || jobs[1].shares[0].err == nil {
		t.Errorf("rank 0: %v, %v", jobs[0].shares[0].err, jobs[1].shares[0].err)
	}
}

// A rank that is asked may already know the verdict from a third rank that has not told the asker yet. It
// answers with the verdict instead of looking guilty.
func TestTraceOfABrokenCommunicator(t *testing.T) {
	for _, called := range []bool{true, false} {
		c := world(t, 2, withDeadline(patient(testConfig()), 5*ms))
		c.fate = keepOps(0)
		j := c.job(0, broadcast(2, 0, 5, 4)).on(0)
		if called {
			j.on(1)
		}
		c.RunFor(ms)
		c.abort(1, 0)
		c.hosts[0].inbox[1].Truncate(0) // as if the message took a longer path
		c.finish()
		c.allFailed(1, []Reason{Aborted}, j)
	}
}

// Rank 1 asks rank 0 why it is late and is then stopped for longer than it would
// wait for an answer. When it runs again the answer is there, unread: rank 0 is
// not to blame, rank 2 is, which did not make the call.
func TestTraceByARankThatWasStopped(t *testing.T) { stoppedTrace(t, 10*ms, 4*ms) }

// The same without heartbeats. The only sign of the stop is then that the clock is later than expected, by
// however little.
func TestTraceByARankThatWasStoppedWithoutHeartbeats(t *testing.T) {
	for _, stop := range []step.Time{2010 * us, 2100 * us, 2500 * us, 3 * ms, 4 * ms, 40 * ms} {
		stoppedTrace(t, 0, stop)
	}
}

// Rank 1 was stopped for so long that it is out itself. It blames itself or the real culprit, but not
// rank 0.
func TestTraceByARankThatIsOut(t *testing.T) {
	for _, stop := range []step.Time{10 * ms, 10100 * us, 11 * ms, 12 * ms, 14 * ms, 20 * ms} {
		stoppedTrace(t, 10*ms, stop)
	}
}

func stoppedTrace(t *testing.T, timeout, stop step.Time) {
	t.Helper()
	cfg := withDeadline(testConfig(), 2*ms)
	cfg.Timeout = timeout
	c := world(t, 3, cfg)
	j := c.job(0, allgather(3, 5, 4)).on(1)
	c.RunFor(1900 * us)
	j.on(0)
	c.Until("the question", func() bool { return c.hosts[1].sends[wire.MsgProbeWait] == 1 })
	c.freeze(1, stop)
	c.finish()
	for r, s := range j.shares {
		out := timeout > 0 && stop >= timeout && s.err.Culprit == 1 && s.err.Reason == Lost
		if !out && (s.err.Culprit != 2 || s.err.Reason != Deadline) {
			t.Errorf("timeout %d, stopped for %d, rank %d: %v", timeout, stop, r, s.err)
		}
	}
}

// Answers without a question, from the wrong rank, about another call, or without sense.
func TestTraceIgnoresWrongAnswers(t *testing.T) {
	c := world(t, 3, withDeadline(testConfig(), 5*ms))
	h := c.hosts[1]
	answer := func(from int, m wire.Msg) {
		t.Helper()
		m.Kind = wire.MsgWaitState
		h.node.Message(c.Now, from, &m)
		if h.node.comms[0].broken != nil || h.act() {
			t.Errorf("an answer of rank %d had an effect: %+v", from, m)
		}
	}
	answer(0, wire.Msg{State: notCalled}) // no call
	j := c.job(0, allgather(3, 5, 4)).on(0, 1)
	answer(0, wire.Msg{State: notCalled}) // no question
	c.Until("the question", func() bool { return h.sends[wire.MsgProbeWait] == 1 })
	answer(2, wire.Msg{State: notCalled})         // asked rank 0
	answer(0, wire.Msg{State: notCalled, Seq: 1}) // asked about 0
	c.finish()
	c.allFailed(2, []Reason{Deadline}, j)
}

// The search ends, whatever wrong answers peers give.
func TestTraceEnds(t *testing.T) {
	for _, m := range []wire.Msg{
		{State: waiting, Rank: 1 << 31},
		{State: waiting, Rank: 4},
		{State: 99},
		{State: complete},
		{State: busy},
		{State: waiting, Rank: 1},
		{State: waiting, Rank: 3},
	} {
		c := world(t, 4, withDeadline(testConfig(), 5*ms))
		h := c.hosts[0]
		j := c.job(0, allgather(4, 5, 4)).on(0)
		c.Until("the question", func() bool { return h.sends[wire.MsgProbeWait] == 1 })
		m.Kind = wire.MsgWaitState
		for range 20 {
			for r := 1; r < 4; r++ {
				h.node.Message(c.Now, r, &m)
			}
			h.act()
		}
		c.Until("the end", func() bool { return c.ended(j) })
		if e := j.shares[0].err; e == nil || e.Reason != Deadline || e.Culprit != NoRank {
			t.Errorf("%+v: %v", m, e)
		}
	}
}
