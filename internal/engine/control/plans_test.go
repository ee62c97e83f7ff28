package control

import (
	"testing"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/wire"
)

// A plan is found for the same call only.
func TestPlansAreForOneCall(t *testing.T) {
	var p plans
	same := Call{Kind: wire.Allgather, Algo: "ring", Counts: []int64{1, 2}, Recv: make([]byte, 3)}
	m := newPlan(&same)
	p.keep(m)
	again := same
	again.Recv, again.Counts, again.Send = make([]byte, 3), []int64{1, 2}, make([]byte, 1)
	if p.find(&again) != m {
		t.Error("not found")
	}
	for name, change := range map[string]func(*Call){
		"kind":      func(c *Call) { c.Kind = wire.ReduceScatter },
		"algorithm": func(c *Call) { c.Algo = "bruck" },
		"root":      func(c *Call) { c.Root = 1 },
		"counts":    func(c *Call) { c.Counts = []int64{2, 1} },
		"bytes":     func(c *Call) { c.Recv = make([]byte, 4) },
		"type":      func(c *Call) { c.Type = reduce.Type(2) },
		"operator":  func(c *Call) { c.Op = reduce.Op(2) },
		"chains":    func(c *Call) { c.Chains = 2 },
		"subgroups": func(c *Call) { c.Subgroups = 2 },
		"chunk":     func(c *Call) { c.Chunk = 2 },
		"groups":    func(c *Call) { c.Groups = [][]int{{1}, {0}} },
		"radix":     func(c *Call) { c.Radix = 2 },
		"segment":   func(c *Call) { c.Segment = 2 },
	} {
		c := same
		change(&c)
		if p.find(&c) != nil {
			t.Errorf("a call with another %s gets the same plan", name)
		}
	}
	same.Counts[0] = 7 // the caller may change its slice
	if p.find(&again) != m {
		t.Error("it depends on the caller's memory")
	}
}

// The last plans are kept, unless they are large.
func TestPlansAreFew(t *testing.T) {
	var p plans
	of := func(n int) *Call { return &Call{Kind: wire.Broadcast, Recv: make([]byte, n)} }
	for n := range maxPlans + 1 {
		p.keep(newPlan(of(n)))
	}
	for n := range maxPlans + 1 {
		if got := p.find(of(n)) != nil; got != (n > 0) {
			t.Errorf("plan %d is kept: %v", n, got)
		}
	}
	p.keep(newPlan(&Call{Groups: [][]int{{0, 1}}}))
	if p.find(of(1)) == nil {
		t.Error("a plan that is never found has replaced another")
	}
	m := newPlan(of(100))
	m.rounds = make([]*mcast.Geometry, maxRounds+1)
	p.keep(m)
	if p.find(of(100)) != nil {
		t.Error("a large plan is kept")
	}
}
