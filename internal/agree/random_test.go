package agree

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/clustertest"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

var seeds = flag.Int("agree.seeds", 10_000, "random runs")

// cluster is a communicator whose ranks agree. Links deliver in order, and all ranks eventually learn of
// every death. With rumours, ranks also declare living ranks dead.
type cluster struct {
	*clustertest.Cluster
	ranks   []*member
	rumours bool
}

// member is one rank: its Machine and the state of its driver.
type member struct {
	*clustertest.Rank
	c      *cluster
	m      *Machine
	links  []*clustertest.Queue[wire.Agree] // by sender
	dead   bool                             // or declared dead
	wrong  bool                             // whether it was declared dead but lives
	told   []bool                           // ranks that it knows to be dead
	called bool
	early  Set // ranks that it knew to be dead when it called
}

func newCluster(t *testing.T, seed uint64, rumours bool) *cluster {
	t.Helper()
	c := &cluster{Cluster: clustertest.New(t, seed), rumours: rumours}
	c.Timers, c.Delay = clustertest.TimersIdle, func() step.Time { return 0 }
	n := 1 + c.Rand.IntN(8)
	for r := range n {
		m := &member{c: c, m: New(Config{Rank: r, Size: n, Patience: 100}), told: make([]bool, n), early: newSet(n)}
		m.Rank = c.Add(r, m)
		c.ranks = append(c.ranks, m)
		for from := range n {
			m.links = append(m.links, clustertest.NewQueue(c.Cluster, "message", m.Rank, from, func(a wire.Agree) {
				m.message(from, &a)
			}))
		}
		if c.Rand.IntN(20) != 0 { // otherwise its user never calls
			clustertest.NewQueue(c.Cluster, "call", m.Rank, r, m.call).Push(struct{}{})
		}
	}
	return c
}

// send puts the messages of a rank on its links.
func (m *member) send() {
	for _, s := range m.m.Sends() {
		b := wire.AppendMsg(nil, &wire.Msg{Kind: wire.MsgAgree, Agree: &s.Msg})
		msg, err := wire.ParseMsg(b)
		if err != nil {
			m.c.Failf("rank %d sends a message that does not parse: %v", m.ID, err)
		}
		m.c.ranks[s.To].links[m.ID].Push(*msg.Agree)
	}
}

func (m *member) NextTimer() step.Time { return m.m.NextTimer() }

func (m *member) Timer() bool {
	m.m.Timer(m.c.Now)
	m.send()
	return true
}

func (m *member) Check()     {}
func (m *member) Done() bool { return m.m.Outcome() != nil }

func (m *member) String() string {
	return fmt.Sprintf("declared dead %v, wrongly %v, called %v, outcome %+v", m.dead, m.wrong, m.called, m.m.Outcome())
}

// crash kills a rank. A random first part of the messages on each of its links still arrives.
func (m *member) crash() {
	for _, to := range m.c.ranks {
		q := to.links[m.ID]
		q.Truncate(m.c.Rand.IntN(q.Len() + 1))
	}
	m.c.Kill(m.Rank)
	m.declareDead()
}

// declareDead makes all ranks learn of a death eventually. A rank that lives learns of its own.
func (m *member) declareDead() {
	m.dead, m.wrong = true, !m.Dead
	for _, r := range m.c.ranks {
		clustertest.NewQueue(m.c.Cluster, "death", r.Rank, m.ID, func(died int) {
			if !r.told[died] {
				r.told[died] = true
				r.m.Dead(died)
				r.send()
			}
		}).Push(m.ID)
	}
}

// call makes the user of the rank call. The agreement must exclude the ranks that it knows to be dead.
func (m *member) call(struct{}) {
	for died, told := range m.told {
		if told {
			m.early.add(died)
		}
	}
	m.called = true
	m.m.Call(m.c.Now, uint32(100+m.ID))
	m.send()
}

func (m *member) message(from int, a *wire.Agree) {
	if m.told[from] {
		return // a rank ignores messages of dead ranks
	}
	for _, d := range Set(a.Dead).Ranks() {
		if !m.c.ranks[d].dead {
			m.c.Failf("rank %d declares rank %d dead, which lives", from, d)
		}
		m.told[d] = true // the message tells the machine
	}
	m.m.Message(m.c.Now, from, a)
	m.send()
}

func (c *cluster) run() {
	crashes := c.Rand.IntN(len(c.ranks))
	for events := 0; ; events++ {
		if crashes > 0 && c.Rand.IntN(15) == 0 {
			crashes--
			living := slices.DeleteFunc(slices.Clone(c.ranks), func(m *member) bool { return m.dead })
			if m := c.ranks[c.Rand.IntN(len(c.ranks))]; len(living) > 1 && !m.dead {
				if c.rumours && c.Rand.IntN(2) == 0 {
					m.declareDead()
				} else {
					m.crash()
				}
			}
		}
		if c.Rand.IntN(300) == 0 {
			if m := c.ranks[c.Rand.IntN(len(c.ranks))]; !m.dead && m.called {
				m.m.Hurry(c.Now)
				m.send()
			}
		}
		if !c.Step() {
			return
		}
		if events > 100_000 {
			c.Failf("the agreement does not end")
		}
	}
}

// known reports whether some rank knew of a death when it called. With rumours, only ranks count that were
// never declared dead: the others may have ignored the rest.
func (c *cluster) known(died int) bool {
	return slices.ContainsFunc(c.ranks, func(m *member) bool { return m.early.Has(died) && (!c.rumours || !m.dead) })
}

// check fails the test unless the outcomes agree. The decision of a rank that died later counts too: it
// may have acted on it.
func (c *cluster) check() {
	var first *wire.AgreeValue
	anyCalled := slices.ContainsFunc(c.ranks, func(m *member) bool { return !m.dead && m.called })
	for r, m := range c.ranks {
		v := m.m.Outcome()
		if m.wrong {
			if v == nil && m.called {
				c.Failf("rank %d was excluded and does not know", r)
			}
			continue
		}
		switch {
		case v == nil && anyCalled && !m.dead:
			c.Failf("rank %d has no outcome", r)
		case v == nil:
			continue
		case first == nil:
			first = v
		case first.Why != v.Why || first.ID != v.ID || !reflect.DeepEqual(first.Ranks, v.Ranks):
			c.Failf("rank %d decided %+v, another rank %+v", r, v, first)
		}
		if v.Why != Agreed {
			continue
		}
		for _, x := range Set(v.Ranks).Ranks() {
			switch {
			case c.known(x):
				c.Failf("rank %d is among the survivors, but was known to be dead", x)
			case !c.ranks[x].called:
				c.Failf("rank %d is among the survivors, but its user has not called", x)
			}
		}
		if !Set(v.Ranks).Has(r) && !m.dead {
			c.Failf("rank %d lives, but is not among the survivors %v", r, Set(v.Ranks).Ranks())
		}
	}
}

// runs calls f with the number of random runs that the flags ask for.
func runs(f func(seed uint64)) (n int) {
	if n = *seeds; testing.Short() {
		n /= 10
	}
	for seed := range uint64(n) {
		f(seed)
	}
	return n
}

// decided returns the first living rank that has an outcome, or nil.
func (c *cluster) decided() *member {
	i := slices.IndexFunc(c.ranks, func(m *member) bool { return !m.dead && m.m.Outcome() != nil })
	if i < 0 {
		return nil
	}
	return c.ranks[i]
}

// Living ranks that are declared dead learn of it, and the others still agree.
func TestRumours(t *testing.T) {
	t.Parallel()
	out, differs := 0, 0
	n := runs(func(seed uint64) {
		c := newCluster(t, seed, true)
		c.run()
		// The decision of a rank that really died does not count here: it may have followed a leader that
		// the others had declared dead.
		for _, m := range c.ranks {
			if m.Dead {
				m.m.outcome = nil
			}
		}
		c.check()
		first := c.decided()
		for _, m := range c.ranks {
			v := m.m.Outcome()
			if !m.wrong || v == nil || first == nil {
				continue
			}
			if v.Why == Excluded {
				out++
			} else if u := first.m.Outcome(); v.Why == Agreed && u.Why == Agreed && v.ID != u.ID {
				differs++
			}
		}
	})
	t.Logf("%d runs: a rank learned %d times that it is excluded, and had decided differently %d times",
		n, out, differs)
	if out == 0 {
		t.Error("no rank was excluded")
	}
}

func TestRandom(t *testing.T) {
	t.Parallel()
	count := map[uint8]int{}
	withDead := 0
	n := runs(func(seed uint64) {
		c := newCluster(t, seed, false)
		c.run()
		c.check()
		if first := c.decided(); first != nil {
			v := first.m.Outcome()
			count[v.Why]++
			if first.m.outdated(v) {
				withDead++
			}
		}
	})
	t.Logf("%d runs: %d agreed (%d of them with a rank that has died since), %d found a rank late",
		n, count[Agreed], withDead, count[Late])
	if count[Agreed] == 0 || count[Late] == 0 || withDead == 0 {
		t.Error("some outcome did not occur")
	}
}
