package node

import (
	"errors"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

var planKinds = []p2p.Kind{p2p.Broadcast, p2p.Allgather, p2p.ReduceScatter, p2p.Allreduce, p2p.Barrier}

// planAlgorithms are those of package p2p and, for reductions, the network's.
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

// Every algorithm completes with the right data, whatever overtakes what, and
// leaves the buffers alone after that.
func TestPlanCompletes(t *testing.T) { planCompletes(t, quietConfig()) }

func planCompletes(t *testing.T, cfg Config) {
	t.Helper()
	everyPlan(t, []int{1, 2, 3, 5, 8}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := newPlanCluster(t, size, seed, cfg)
		c.completed(c.all(c.call(0, kind, algo, 10)), c.all(c.call(0, kind, algo, 0)))
		for _, h := range c.nodes {
			if s := h.node.Stats(); s.Stale != 0 || s.Foreign != 0 {
				t.Fatalf("rank %d dropped something: %+v", h.id, s)
			}
		}
	})
}

// All kinds of calls at once, on communicators that number the ranks differently,
// with some ranks far behind.
func TestPlansAtOnce(t *testing.T) {
	for seed := range uint64(60) {
		c := newPlanCluster(t, 5, seed, quietConfig())
		c.comm(1, 3, 0, 4)
		c.comm(2, 4, 3, 2, 1, 0)
		c.completed(c.oneByOne(12, 3)...)
	}
}

// oneByOne draws calls on the first communicators, and lets rank after rank make all of
// theirs, in any order of ranks: the last ones are far behind.
func (c *planCluster) oneByOne(n, comms int) (calls []*planCall) {
	for range n {
		kind := planKinds[c.rng.IntN(len(planKinds))]
		algos := planAlgorithms(kind)
		calls = append(calls, c.call(uint32(c.rng.IntN(comms)), kind, algos[c.rng.IntN(len(algos))], int64(c.rng.IntN(20))))
	}
	for _, late := range c.rng.Perm(len(c.nodes)) {
		for _, k := range calls {
			if _, member := c.nodes[late].node.comms[k.comm]; member {
				c.on(k, late)
			}
		}
		c.run()
	}
	return calls
}

// Greetings that come before the call are kept for it; pieces cannot, and one that
// comes all the same is not taken.
func TestPlanEarly(t *testing.T) {
	everyPlan(t, []int{2, 5}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := newPlanCluster(t, size, seed, quietConfig())
		late := c.rng.IntN(size)
		k := c.call(0, kind, algo, 10)
		for r := range size {
			if r != late {
				c.on(k, r)
			}
		}
		c.run()
		n := c.nodes[late].node
		if n.comms[0].earlyCount == 0 {
			t.Fatalf("rank %d keeps no greeting", late)
		}
		for from := range size {
			if n.Early(from, 0, 0, 3) {
				t.Fatalf("a piece of rank %d is kept before the call, and nobody is eager", from)
			}
		}
		if n.Result(c.now, 0, 0, 0, incChunk) || n.Stats().Stale != 1 {
			t.Fatalf("a sum is taken before the call, or is not counted: %+v", n.Stats())
		}
		c.on(k, late)
		c.run()
		c.completed(k)
		if n.comms[0].earlyCount != 0 {
			t.Fatalf("%d greetings are still kept", n.comms[0].earlyCount)
		}
	})
}

// Pieces may overtake the greeting of their sender. The call then waits for it:
// had it ended and been drained, the greeting would look like that of a rank which
// makes the call only now.
func TestPlanGreetingComesLast(t *testing.T) {
	everyPlan(t, []int{2, 3, 6}, func(x planCase) {
		t, kind, algo, size, seed := x.T, x.kind, x.algo, x.size, x.seed
		c := newPlanCluster(t, size, seed, quietConfig())
		k := c.call(0, kind, algo, 10)
		to := c.rng.IntN(size)
		from := (to + 1 + c.rng.IntN(size-1)) % size
		line := lineKey{"message", from, to}
		c.held[line] = true
		c.all(k)
		c.held[line] = false
		c.run()
		c.completed(k)
		c.completed(c.all(c.call(0, kind, algo, 7)))
	})
}

// Bad calls are refused at once, and leave no trace.
func TestPlanBadCalls(t *testing.T) {
	c := newPlanCluster(t, 3, 1, quietConfig())
	n := c.nodes[1].node
	plan, err := p2p.New("ring", p2p.Spec{Kind: p2p.Allgather, Rank: 1, Size: 3, Counts: []int64{1, 2, 3}})
	if err != nil {
		t.Fatal(err)
	}
	other, other2 := *plan, *plan
	other.Rank, other2.Size = 0, 2
	red := func(change func(*p2p.Reduction)) *p2p.Reduction {
		r := &p2p.Reduction{Kind: p2p.ReduceScatter, Rank: 1, Size: 3, Counts: []int64{1, 2, 3}, Chunk: 4}
		change(r)
		return r
	}
	for what, x := range map[string]struct{ err, want error }{
		"communicator":        {n.StartPlan(c.now, 9, 0, plan), ErrComm},
		"another rank's":      {n.StartPlan(c.now, 0, 0, &other), ErrSize},
		"another size":        {n.StartPlan(c.now, 0, 0, &other2), ErrSize},
		"inc communicator":    {n.StartReduction(c.now, 9, 0, red(func(*p2p.Reduction) {})), ErrComm},
		"inc another rank's":  {n.StartReduction(c.now, 0, 0, red(func(r *p2p.Reduction) { r.Rank = 2 })), ErrSize},
		"inc no chunk":        {n.StartReduction(c.now, 0, 0, red(func(r *p2p.Reduction) { r.Chunk = 0 })), p2p.ErrSpec},
		"inc too few blocks":  {n.StartReduction(c.now, 0, 0, red(func(r *p2p.Reduction) { r.Counts = r.Counts[:1] })), p2p.ErrSpec},
		"inc of another kind": {n.StartReduction(c.now, 0, 0, red(func(r *p2p.Reduction) { r.Kind = p2p.Allgather })), p2p.ErrSpec},
	} {
		if !errors.Is(x.err, x.want) {
			t.Errorf("%s: error %v, want %v", what, x.err, x.want)
		}
	}
	if len(n.Actions()) > 0 || n.comms[0].nextSeq != 0 {
		t.Error("a refused call had an effect")
	}
	c.completed(c.all(c.call(0, p2p.Allgather, "ring", 5)))
}

// What comes from nowhere, for nothing or too late is counted and not taken.
func TestPlanForeignPieces(t *testing.T) {
	c := newPlanCluster(t, 3, 1, quietConfig())
	c.comm(1, 0, 2)
	k := c.call(0, p2p.Allgather, "ring", 5)
	c.on(k, 0)
	red := c.call(1, p2p.ReduceScatter, "inc", 5)
	c.on(red, 0)
	n := c.nodes[0].node
	refused := func(what string, from int, comm uint32, seq uint64, nth uint32, length int64) {
		t.Helper()
		if c.nodes[0].takes(from, opKey{comm, seq}, nth, make([]byte, length)) || len(n.Actions()) > 0 {
			t.Errorf("%s: taken", what)
		}
	}
	for _, from := range []int{-1, 3, 1 << 40, -1 << 40} {
		refused("no rank", from, 0, 0, 0, 3)
		stale := n.Stats().Stale
		n.Message(c.now, from, &wire.Msg{Kind: wire.MsgReady})
		if n.Stats().Stale != stale+1 {
			t.Errorf("a message of rank %d is not counted", from)
		}
	}
	refused("no communicator", 2, 7, 0, 0, 3)
	refused("not a member", 1, 1, 0, 0, 3)
	refused("no such operation", 2, 0, 1, 0, 3)
	refused("one that the network reduces", 2, 1, 0, 0, 3)
	refused("nobody we receive from", 1, 0, 0, 0, 3)
	refused("a piece too many", 2, 0, 0, 99, 3)
	refused("another length", 2, 0, 0, 0, 4)
	for what, taken := range map[string]bool{
		"no communicator":   n.Result(c.now, 7, 0, 0, 4),
		"no such operation": n.Result(c.now, 1, 5, 0, 4),
		"a plan":            n.Result(c.now, 0, 0, 0, 4),
		"not our block":     n.Result(c.now, 1, 0, 5, 4),
		"another length":    n.Result(c.now, 1, 0, 0, 3),
	} {
		if taken {
			t.Errorf("%s: a sum is taken", what)
		}
	}
	c.on(k, 1, 2)
	c.on(red, 2)
	c.run()
	c.completed(k, red)
	if f := n.Stats().Foreign; f != 7 { // four of no rank, and the last three
		t.Errorf("%d pieces are counted as foreign, want 7", f)
	}
}
