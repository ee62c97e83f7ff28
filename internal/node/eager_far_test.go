package node

import (
	"testing"

	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// Each hop of a chain lets rank 0 get lead calls further ahead, so that it is further ahead of the last
// rank than there are slots. The greeting of the last rank for its first call is not taken for that of
// another call.
func TestEagerFarAhead(t *testing.T) {
	const size, far = 10, 8
	cfg := eagerConfig()
	cfg.Layout, _ = wire.NewLayout(27)
	c := planWorld(t, size, 1, cfg)
	var calls []*job
	for range 5 { // until the last rank owes a greeting
		calls = append(calls, c.plan(0, p2p.Broadcast, "binomial", 10))
	}
	for range 66 {
		calls = append(calls, c.plan(0, p2p.Broadcast, "chain", 10))
	}
	for r := range far {
		for _, k := range calls {
			k.on(r)
		}
		c.run()
	}
	for r := far; r < size; r++ {
		for _, k := range calls {
			k.on(r)
		}
	}
	c.run()
	c.RunFor(100 * ms)
	c.allRight(calls...)
}

// The same lead, and then a barrier: the last rank keeps the greeting of rank 0, however far ahead it is.
func TestEagerGreetingFromFarAhead(t *testing.T) {
	const size, far = 10, 8
	cfg := eagerConfig()
	cfg.Layout, _ = wire.NewLayout(27)
	c := planWorld(t, size, 1, cfg)
	var calls []*job
	for range 66 {
		calls = append(calls, c.plan(0, p2p.Broadcast, "chain", 10))
	}
	calls = append(calls, c.plan(0, p2p.Barrier, "recursive-doubling", 0))
	for r := range far {
		for _, k := range calls {
			k.on(r)
		}
	}
	c.run()
	c.RunFor(100 * ms) // patience ends: rank 0 greets all
	for r := far; r < size; r++ {
		for _, k := range calls {
			k.on(r)
		}
	}
	c.run()
	c.RunFor(1000 * ms)
	c.allRight(calls...)
}
