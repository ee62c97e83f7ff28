package node

import (
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// only limits the time of a call on one rank.
func (j *job) only(rank int, limit step.Time) *job {
	j.limit = func(r int) step.Time {
		if r == rank {
			return limit
		}
		return 0
	}
	return j
}

// One rank has a timeout, and another rank never makes the call. All ranks learn which one that is.
func TestTimeoutOfOneRank(t *testing.T) {
	const limit = 5 * ms
	for p := 2; p <= 6; p++ {
		for absent := range p {
			for patient := range p {
				if patient == absent {
					continue
				}
				c := world(t, p, testConfig())
				j := c.job(0, allgather(p, 5, 4)).only(patient, limit).on(slices.Delete(upTo(p), absent, absent+1)...)
				began := c.Now
				c.Until("the end of the call", func() bool { return c.ended(j) })
				if took := c.Now - began; took < limit || took > limit+ms {
					t.Errorf("%d ranks, without %d: the call ended after %d", p, absent, took)
				}
				c.finish()
				j.on(absent)
				c.allFailed(absent, []Reason{Deadline}, j)
			}
		}
	}
}

// The shorter one of the timeout and Config.Deadline counts.
func TestTimeoutAndDeadline(t *testing.T) {
	for _, x := range []struct{ deadline, limit, want step.Time }{
		{5 * ms, 2 * ms, 2 * ms},
		{2 * ms, 5 * ms, 2 * ms},
		{0, 2 * ms, 2 * ms},
		{2 * ms, 0, 2 * ms},
	} {
		c := world(t, 3, withDeadline(testConfig(), x.deadline))
		j := c.job(0, allgather(3, 5, 4))
		j.limit = func(int) step.Time { return x.limit }
		j.on(0, 1)
		began := c.Now
		c.Until("the end of the call", func() bool { return c.ended(j) })
		if took := c.Now - began; took < x.want || took > x.want+ms {
			t.Errorf("%+v: the call ended after %d", x, took)
		}
		c.finish()
		c.allFailed(2, []Reason{Deadline}, j)
	}
}

// A call that waits behind others passes its timeout first.
func TestTimeoutInTheQueue(t *testing.T) {
	const limit = 5 * ms
	for place := range 5 {
		for absent := range 4 {
			cfg := withDeadline(testConfig(), 50*ms)
			cfg.InFlight = 2
			c := world(t, 4, cfg)
			var jobs []*job
			began := c.Now
			for i := range 5 {
				j := c.job(0, allgather(4, 5, 4))
				if i == place {
					j.only((absent+1)%4, limit)
				}
				jobs = append(jobs, j.on(slices.Delete(upTo(4), absent, absent+1)...))
			}
			c.Until("the end of all calls", func() bool { return c.ended(jobs...) })
			if took := c.Now - began; took < limit || took > limit+ms {
				t.Errorf("call %d, without %d: the calls ended after %d", place, absent, took)
			}
			c.finish()
			c.allFailed(absent, []Reason{Deadline}, jobs...)
		}
	}
}

// Rank 2 makes its second call only after the first, which waits for rank 3. The timeout of the second call
// blames rank 3, not rank 2.
func TestTimeoutBehindABlockedRank(t *testing.T) {
	c := world(t, 4, testConfig())
	first := c.job(0, allgather(4, 5, 4)).on(0, 1, 2)
	second := c.job(0, allgather(4, 5, 4)).only(0, 5*ms).on(0, 1)
	c.finish()
	c.allFailed(3, []Reason{Deadline}, first, second)
}

// The oldest call is slow on rank 1, and no rank is at fault. Rank 2 has completed that call, but does not make the
// second one, which passes its timeout.
func TestTimeoutOfALaterCall(t *testing.T) {
	c := world(t, 3, patient(testConfig()))
	c.fate = func(to int, d *datagram) clustertest.Fate {
		if to == 1 && d.seq == 0 {
			return clustertest.Keep
		}
		return clustertest.Deliver
	}
	first := c.job(0, broadcast(3, 0, 5, 4)).on(0, 1, 2)
	c.RunFor(ms)
	if first.shares[1].ended || !first.shares[2].ended {
		t.Fatalf("the first call has ended on rank 1: %v, on rank 2: %v", first.shares[1].ended, first.shares[2].ended)
	}
	second := c.job(0, allgather(3, 5, 4)).only(1, 3*ms).on(0, 1)
	c.finish()
	c.allFailed(2, []Reason{Deadline}, second)
}

// Ranks with different timeouts make the same call. Calls that end in time leave no trace.
func TestTimeoutNotOfCallsInTime(t *testing.T) {
	c := world(t, 5, testConfig())
	for range 10 {
		var jobs []*job
		for i := range 3 {
			j := c.job(0, allgather(5, 30, 4))
			j.limit = func(rank int) step.Time { return step.Time(rank+3*i) * 3 * ms } // rank 0 may have none
			jobs = append(jobs, j.on(upTo(5)...))
		}
		c.RunFor(2 * ms)
		c.allRight(jobs...)
		c.RunFor(50 * ms)
	}
	c.finish()
	for _, h := range c.hosts {
		if n := h.sends[wire.MsgProbeWait] + h.sends[wire.MsgWaitState]; n > 0 {
			t.Errorf("rank %d asked and answered %d times", h.ID, n)
		}
		if at := h.node.comms[0].deadlineTimer(); at != step.Never {
			t.Errorf("rank %d: a timer at %d", h.ID, at)
		}
	}
}

// A Send and a Recv without a match end at their timeout, and name the rank that provided none. The communicator
// is intact, and a message that comes later goes to the next Recv.
func TestTimeoutWithoutAMatch(t *testing.T) {
	for seed := range uint64(30) {
		c := planWorld(t, 3, seed, testConfig())
		from, to := c.hosts[2], c.hosts[0]
		n := EagerMail + 1
		s, r, open := from.send(0, 0, 1, n), to.recv(0, 2, 2, n), to.recv(0, AnyRank, 3, n)
		for _, x := range []*parcel{s, r, open} {
			x.expires, x.gaveUp = true, true
			x.h.node.SetDeadline(0, x.req, c.Now+5*ms)
			x.h.act()
		}
		c.RunFor(4 * ms)
		if s.ended || r.ended || open.ended {
			t.Fatalf("too early: %v; %v; %v", s, r, open)
		}
		c.RunFor(2 * ms)
		c.mailFailed(Unmatched, 0, s)
		c.mailFailed(Unmatched, 2, r)
		c.mailFailed(Unmatched, NoRank, open)
		for x, want := range map[*parcel]string{
			s: "a receive with tag 1 on rank 0", r: "a message with tag 2 from rank 2",
			open: "a message with tag 3 from any rank",
		} {
			if x.err.Missing != want || x.err.Phase != step.Queued {
				t.Errorf("%v; want %q", x.err, want)
			}
		}
		c.mailboxEmpty(0)
		s, r = from.send(0, 0, 2, n), to.recv(0, 2, 2, n)
		c.RunFor(5 * ms)
		c.mailEnded(s, r)
	}
}

// After the match, a timeout breaks the communicator. Both ranks have done their part, and none is blamed.
func TestTimeoutAfterTheMatch(t *testing.T) {
	for late := range 2 {
		c := planWorld(t, 2, 1, testConfig())
		from, to := c.hosts[0], c.hosts[1]
		from.puts.Held = true
		s, r := from.send(0, 1, 1, EagerMail+1), to.recv(0, 0, 1, EagerMail+1)
		x := []*parcel{s, r}[late]
		x.expires, x.gaveUp = true, true
		x.h.node.SetDeadline(0, x.req, c.Now+5*ms)
		x.h.act()
		c.RunFor(6 * ms)
		from.puts.Held = false
		c.run()
		c.mailFailed(Deadline, NoRank, s, r)
	}
}

// An eager Send ends although no rank receives, and passes no timeout.
func TestTimeoutOfAnEagerSend(t *testing.T) {
	c := planWorld(t, 2, 1, testConfig())
	s := c.hosts[0].send(0, 1, 1, 9)
	c.hosts[0].node.SetDeadline(0, s.req, c.Now+ms)
	c.RunFor(5 * ms)
	c.mailEnded(s)
	r := c.hosts[1].recv(0, 0, 1, 9)
	c.RunFor(5 * ms)
	c.mailEnded(r)
}

// SetDeadline of a call that has ended, or on no communicator, does nothing.
func TestSetDeadlineOfNoCall(t *testing.T) {
	c := world(t, 2, quietConfig())
	n := c.hosts[0].node
	n.SetDeadline(9, 1, c.Now)
	n.SetDeadline(0, 1, c.Now)
	if at := n.NextTimer(); at != step.Never {
		t.Errorf("a timer at %d", at)
	}
}
