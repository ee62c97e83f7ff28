package node

import (
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

var planKinds = wire.CallKinds()

// planAlgorithms are those of package p2p and, for reductions, that of aggregators.
func planAlgorithms(kind p2p.Kind) []string {
	algos := p2p.Algorithms(kind)
	if kind == p2p.ReduceScatter || kind == p2p.Allreduce {
		algos = append(algos, "inc")
	}
	return algos
}

// planCase is one run of a test with an algorithm.
type planCase struct {
	*testing.T
	kind p2p.Kind
	algo string
	size int
	seed uint64
}

// everyPlan runs a test for each algorithm, with some sizes and seeds.
func everyPlan(t *testing.T, sizes []int, test func(planCase)) {
	t.Helper()
	for _, kind := range planKinds {
		for _, algo := range planAlgorithms(kind) {
			t.Run(kind.String()+"/"+algo, func(t *testing.T) {
				for _, size := range sizes {
					for seed := range uint64(4) {
						test(planCase{t, kind, algo, size, seed})
					}
				}
			})
		}
	}
}

// Every algorithm completes with the right data in any order of delivery, and does not touch the buffers
// after that.
func TestPlanCompletes(t *testing.T) { planCompletes(t, quietConfig()) }

func planCompletes(t *testing.T, cfg Config) {
	t.Helper()
	everyPlan(t, []int{1, 2, 3, 5, 8}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := planWorld(t, size, seed, cfg)
		c.allRight(c.plan(0, kind, algo, 10).all(), c.plan(0, kind, algo, 0).all())
		for _, h := range c.hosts {
			if s := h.node.Stats(); s.Stale != 0 || s.Foreign != 0 {
				t.Fatalf("rank %d dropped something: %+v", h.ID, s)
			}
		}
	})
}

// All kinds of calls at once, on communicators that number the ranks differently,
// with some ranks far behind.
func TestPlansAtOnce(t *testing.T) {
	for seed := range uint64(60) {
		c := planWorld(t, 5, seed, quietConfig())
		c.comm(1, 3, 0, 4)
		c.comm(2, 4, 3, 2, 1, 0)
		c.allRight(c.oneByOne(12, 3)...)
	}
}

// oneByOne draws calls on the first communicators, and lets rank after rank make all of
// theirs, in any order of ranks: the last ones are far behind.
func (c *cluster) oneByOne(n, comms int) (calls []*job) {
	for range n {
		kind := planKinds[c.Rand.IntN(len(planKinds))]
		comm := uint32(c.Rand.IntN(comms))
		algos := planAlgorithms(kind)
		if len(c.comms[comm]) < len(c.hosts) {
			algos = p2p.Algorithms(kind)
		}
		calls = append(calls, c.plan(comm, kind, algos[c.Rand.IntN(len(algos))], int64(c.Rand.IntN(20))))
	}
	for _, late := range c.Rand.Perm(len(c.hosts)) {
		for _, k := range calls {
			if _, member := c.hosts[late].node.comms[k.comm]; member {
				k.on(late)
			}
		}
		c.run()
	}
	return calls
}

// A rank keeps greetings that come before the call. It does not keep pieces, and refuses them.
func TestPlanEarly(t *testing.T) {
	everyPlan(t, []int{2, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := planWorld(t, size, seed, quietConfig())
		late := c.Rand.IntN(size)
		k := c.plan(0, kind, algo, 10)
		for r := range size {
			if r != late {
				k.on(r)
			}
		}
		c.run()
		n := c.hosts[late].node
		// Ranks that reduce by aggregators greet their parent in the control tree only.
		greeted := algo != "inc" || len(mcast.AppendTreeChildren(nil, late, size)) > 0
		if greeted && n.comms[0].early.count == 0 {
			t.Fatalf("rank %d keeps no greeting", late)
		}
		for from := range size {
			if n.Early(from, 0, 0, 3) {
				t.Fatalf("a piece of rank %d is kept before the call, and the call is not eager", from)
			}
		}
		k.on(late)
		c.run()
		c.allRight(k)
		if n.comms[0].early.count != 0 {
			t.Fatalf("%d greetings are still kept", n.comms[0].early.count)
		}
	})
}

// Pieces may overtake the greeting of their sender. The call then waits for the greeting: if the call had
// ended and been drained, the greeting would look like that of a rank which makes the call only now.
func TestPlanGreetingComesLast(t *testing.T) {
	everyPlan(t, []int{2, 3, 6}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := planWorld(t, size, seed, quietConfig())
		k := c.plan(0, kind, algo, 10)
		to := c.Rand.IntN(size)
		from := (to + 1 + c.Rand.IntN(size-1)) % size
		line := c.hosts[to].inbox[from]
		line.Held = true
		k.all()
		line.Held = false
		c.run()
		c.allRight(k)
		c.allRight(c.plan(0, kind, algo, 7).all())
	})
}

// Bad calls are refused at once, and leave no trace.
func TestPlanBadCalls(t *testing.T) {
	c := planWorld(t, 3, 1, quietConfig())
	n := c.hosts[1].node
	plan, err := p2p.New("ring", p2p.Spec{Kind: p2p.Allgather, Rank: 1, Size: 3, Counts: []int64{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	other, other2 := *plan, *plan
	other.Rank, other2.Size = 0, 2
	for what, x := range map[string]struct{ err, want error }{
		"communicator":   {n.StartPlan(c.Now, 9, 0, plan), ErrComm},
		"another rank's": {n.StartPlan(c.Now, 0, 0, &other), ErrSize},
		"another size":   {n.StartPlan(c.Now, 0, 0, &other2), ErrSize},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: error %v, want %v", what, x.err, x.want)
		}
	}
	if len(n.Actions()) > 0 || n.comms[0].nextSeq != 0 {
		t.Error("a refused call had an effect")
	}
	c.allRight(c.plan(0, p2p.Allgather, "ring", 5).all())
}

// Pieces of no rank, for no call or too late are counted and refused.
func TestPlanForeignPieces(t *testing.T) {
	c := planWorld(t, 3, 1, quietConfig())
	c.comm(1, 0, 2)
	k := c.plan(0, p2p.Allgather, "ring", 5)
	k.on(0)
	c.comm(2, 0, 1, 2)
	red := c.plan(2, p2p.ReduceScatter, "inc", 5)
	red.on(0)
	n := c.hosts[0].node
	refused := func(what string, from int, comm uint32, seq uint64, nth uint32, length int64) {
		t.Helper()
		if c.hosts[0].takes(piece{opKey{comm, seq}, from, nth, make([]byte, length)}) || len(n.Actions()) > 0 {
			t.Errorf("%s: taken", what)
		}
	}
	for _, from := range []int{-1, 3, 1 << 40, -1 << 40} {
		refused("no rank", from, 0, 0, 0, 3)
		stale := n.Stats().Stale
		n.Message(c.Now, from, &wire.Msg{Kind: wire.MsgReady})
		if n.Stats().Stale != stale+1 {
			t.Errorf("a message of rank %d is not counted", from)
		}
	}
	refused("no communicator", 2, 7, 0, 0, 3)
	refused("not a member", 1, 1, 0, 0, 3)
	refused("no such operation", 2, 0, 1, 0, 3)
	refused("one that aggregators reduce", 2, 2, 0, 0, 3)
	refused("no rank we receive from", 1, 0, 0, 0, 3)
	refused("a piece too many", 2, 0, 0, 99, 3)
	refused("another length", 2, 0, 0, 0, 4)
	k.on(1, 2)
	red.on(1, 2)
	c.run()
	c.allRight(k, red)
	if f := n.Stats().Foreign; f != 7 { // four of no rank, and the last three
		t.Errorf("%d pieces are counted as foreign, want 7", f)
	}
}
