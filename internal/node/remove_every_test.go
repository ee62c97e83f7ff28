package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

// closedLimit is the time within which ranks learn that a rank which they wait for has closed the communicator. It
// leaves room for the patience of eager calls.
const closedLimit = 100 * ms

// removalCase is a call on a communicator that some ranks have closed.
type removalCase struct {
	name string
	size int
	cfg  Config
	call func(c *cluster, comm uint32) *job
}

// run makes the call on all other ranks, before or after those ranks close the communicator, and after used calls. If
// the call comes after that, those ranks have closed many other communicators meanwhile. All calls must end in time. A
// call that fails must name its phase and one of those ranks.
func (x *removalCase) run(t *testing.T, before bool, used int, closers ...int) {
	t.Helper()
	const comm = 7
	c := world(t, x.size, x.cfg)
	c.Subject = fmt.Sprintf("%s on %d ranks, closed by %v, called before that %v, after %d calls",
		x.name, x.size, closers, before, used)
	c.comm(comm, upTo(x.size)...)
	for range used {
		first := x.call(c, comm).on(upTo(x.size)...)
		c.RunFor(closedLimit)
		c.allRight(first)
	}
	c.hurt = true // ranks may send to those that have left
	j := x.call(c, comm)
	if before {
		j.on(without(x.size, closers...)...)
		c.RunFor(ms)
	}
	c.remove(comm, closers...)
	if !before {
		for _, r := range closers {
			c.hosts[r].closeMany()
		}
		j.on(without(x.size, closers...)...)
	}
	c.RunFor(closedLimit)
	failed := j.failures(Left, closers...)
	if n := x.size - len(closers); failed < n && !j.kind.Rooted() {
		c.Failf("only %d of %d ranks fail, and all of them need those that have left", failed, n)
	}
	for r, s := range j.shares {
		if e := s.err; e != nil && (e.Op != j.kind || e.Phase.String() == "" || e.Missing == "") {
			c.Failf("rank %d: %v", r, e)
		}
	}
}

// closeMany closes more communicators, intact and broken ones, than a rank remembers.
func (h *host) closeMany() {
	const first, many = 1000, 200
	h.c.T.Helper()
	for id := uint32(first); id < first+many; id++ {
		err := h.node.AddComm(id, []int{h.ID})
		if err == nil && id%2 == 0 {
			err = h.node.Abort(id)
		}
		if err := errors.Join(err, h.node.RemoveComm(h.c.Now, id)); err != nil {
			h.c.Failf("rank %d: %v", h.ID, err)
		}
		h.act()
	}
}

// eagerMulticasts lets small multicasts be eager.
func eagerMulticasts(cfg Config) Config {
	cfg.EagerChunks = 32
	cfg.Room += mcast.EagerRoom(cfg.EagerChunks)
	return cfg
}

// eagerly makes a Shape eager.
func eagerly(s mcast.Shape) mcast.Shape {
	s.Eager = 32
	return s
}

// removalCalls returns every way to make a collective: by multicast in one or several rounds, eager or not, by each
// algorithm of package p2p, and by aggregators.
func removalCalls(size int) []removalCase {
	var all []removalCase
	add := func(name string, cfg Config, call func(c *cluster, comm uint32) *job) {
		all = append(all, removalCase{name: name, size: size, cfg: cfg, call: call})
	}
	add("allgather/mcast", quietConfig(), func(c *cluster, comm uint32) *job {
		return c.job(comm, allgather(size, 10, 4))
	})
	add("allgather/mcast in rounds", psnBits(quietConfig(), 4), func(c *cluster, comm uint32) *job {
		return c.job(comm, allgather(size, 40, 4))
	})
	add("broadcast/mcast", quietConfig(), func(c *cluster, comm uint32) *job {
		return c.job(comm, broadcast(size, size-1, 10, 4))
	})
	add("eager allgather/mcast", eagerMulticasts(quietConfig()), func(c *cluster, comm uint32) *job {
		return c.job(comm, eagerly(allgather(size, 10, 4)))
	})
	add("eager broadcast/mcast", eagerMulticasts(quietConfig()), func(c *cluster, comm uint32) *job {
		return c.job(comm, eagerly(broadcast(size, size-1, 10, 4)))
	})
	for _, kind := range wire.CallKinds() {
		for _, algo := range planAlgorithms(kind) {
			plan := func(c *cluster, comm uint32) *job { return c.plan(comm, kind, algo, 10) }
			add(fmt.Sprintf("%v/%s", kind, algo), quietConfig(), plan)
			if algo != "inc" {
				add(fmt.Sprintf("eager %v/%s", kind, algo), eagerConfig(), plan)
			}
		}
	}
	return all
}

// Ranks that call a collective on a communicator which any one rank has closed learn of that, for every number of ranks
// and every algorithm.
func TestEveryCallOnARemovedCommunicator(t *testing.T) {
	for size := 2; size <= 9; size++ {
		for _, x := range removalCalls(size) {
			for closer := range size {
				if testenv.Race && closer%3 != size%3 { // one goroutine runs all of it
					continue
				}
				x.run(t, (closer+size)%2 == 0, closer/2%2, closer)
			}
		}
	}
}

// The same if several ranks have closed it.
func TestEveryCallAfterManyHaveClosed(t *testing.T) {
	const size = 6
	for _, x := range removalCalls(size) {
		for set := 1; set < 1<<size-1; set++ {
			if testenv.Race && set%5 != 0 {
				continue
			}
			var closers []int
			for r := range size {
				if set>>r&1 != 0 {
					closers = append(closers, r)
				}
			}
			x.run(t, set%2 == 0, 0, closers...)
		}
	}
}

// A rank waits for another one that has not made the call, and breaks the communicator instead. All ring and barrier
// neighbours have left, so that only that rank can tell.
func TestVerdictReachesEarlyCallers(t *testing.T) {
	const size, comm, waits, aborts = 8, 7, 0, 3
	for name, cfg := range map[string]Config{"eager": eagerConfig(), "not eager": quietConfig()} {
		c := world(t, size, cfg)
		c.Subject, c.Seed = name, aborts // the root
		c.comm(comm, upTo(size)...)
		c.hurt = true
		c.remove(comm, mcast.AppendPeers(nil, waits, size)...)
		j := c.plan(comm, p2p.Scatter, "linear", 10).on(waits)
		c.RunFor(closedLimit)
		c.abort(aborts, comm)
		c.RunFor(closedLimit)
		c.allFailed(aborts, []Reason{Aborted}, j)
	}
}

// A rank closes the communicator as soon as its calls have completed, and forgets it. Greetings that arrive after that
// belong to calls which it has made: nobody takes them for calls that it will not make.
func TestForgettingHurtsNobody(t *testing.T) {
	const comm, calls, seeds = 7, 10, 4
	for size := 2; size <= 5; size++ {
		for i, x := range removalCalls(size) {
			for seed := range uint64(seeds) {
				if testenv.Race && seed > 0 {
					continue
				}
				c := planWorld(t, size, seed*100+uint64(i), x.cfg)
				c.Subject = fmt.Sprintf("%s on %d ranks", x.name, size)
				c.comm(comm, upTo(size)...)
				var jobs []*job
				for range calls {
					jobs = append(jobs, x.call(c, comm).on(upTo(size)...))
				}
				open := upTo(size)
				c.Until("the end of all calls", func() bool {
					open = slices.DeleteFunc(open, func(r int) bool {
						if !c.hosts[r].Done() {
							return false
						}
						c.remove(comm, r)
						c.hosts[r].closeMany()
						return true
					})
					return len(open) == 0
				})
				c.RunFor(closedLimit)
				c.allRight(jobs...)
				c.forgotten(comm)
			}
		}
	}
}

// A call passes its deadline before its rank greets the root, which has closed the communicator. The root answers the
// search, also if it has forgotten the communicator or cannot forget it yet.
func TestProbeOfAClosedCommunicator(t *testing.T) {
	const comm = 7
	for _, busy := range []bool{false, true} {
		c := world(t, 3, withDeadline(eagerConfig(), 5*ms))
		c.comm(comm, upTo(3)...)
		if busy {
			c.hosts[0].send(comm, 2, 1, EagerMail+1)
		}
		c.remove(comm, 0)
		c.hosts[0].closeMany()
		if got := c.hosts[0].node.comms[comm] != nil; got != busy {
			t.Fatalf("rank 0 knows the communicator: %v, want %v", got, busy)
		}
		j := c.plan(comm, p2p.Broadcast, "binomial", 10).on(1)
		c.RunFor(6 * ms)
		c.allFailed(0, []Reason{Left}, j)
	}
}

// A Recv and a large Send wait for a rank that closed the communicator long ago.
func TestMailToAForgottenCommunicator(t *testing.T) {
	const comm = 7
	c := world(t, 3, testConfig())
	c.comm(comm, upTo(3)...)
	c.remove(comm, 0)
	c.hosts[0].closeMany()
	c.hurt = true
	r := c.hosts[1].recv(comm, 0, 1, 10)
	c.RunFor(2 * c.cfg.Timeout)
	s := c.hosts[2].send(comm, 0, 1, EagerMail+1)
	c.RunFor(2 * c.cfg.Timeout)
	for _, x := range []*parcel{r, s} {
		if !x.ended || x.err == nil || x.err.Reason != Left || x.err.Culprit != 0 {
			t.Errorf("%v: ended %v, %v", x, x.ended, x.err)
		}
	}
}
