package mem

import (
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/fabrictest"
	"github.com/allcast/allcast/internal/wire"
)

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{
		"plain":      {Subgroups: 2},
		"all":        {Subgroups: 2, Streams: 3, Groups: true, Direct: true, BusyEvery: 3},
		"one by one": {Subgroups: 2, Batch: 1, BusyEvery: 2},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(t *testing.T, ranks int) *Net {
				t.Helper()
				n := New(ranks, cfg)
				t.Cleanup(n.Close)
				return n
			}
			var last *Net
			fabrictest.Test(t, fabrictest.Network{
				Multicast: func(t *testing.T, ranks int) (all []fabric.Multicast) {
					t.Helper()
					last = open(t, ranks)
					for r := range ranks {
						all = append(all, last.Multicast(r))
					}
					return all
				},
				Foreign: func(_ *testing.T, ranks []fabric.Multicast) {
					for r := range ranks {
						for k := range wire.HeaderSize {
							last.Inject(r, 0, make([]byte, k))
						}
					}
				},
				Reliable: func(t *testing.T, handlers []fabric.Handler) *fabrictest.World {
					t.Helper()
					n := open(t, len(handlers))
					w := &fabrictest.World{Kill: n.Kill}
					for r, h := range handlers {
						w.Ranks = append(w.Ranks, n.Reliable(r, h))
					}
					return w
				},
			})
		})
	}
}
