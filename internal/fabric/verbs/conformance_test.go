//go:build verbs

package verbs_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/fabrictest"
	"github.com/allcast/allcast/internal/fabric/verbs"
)

// The fabric keeps the contract. Datagrams without a header cannot arrive, since foreign queue pairs do
// not know the key of the group.
func TestConformance(t *testing.T) {
	dummyNet(t)
	for name, sums := range map[string]bool{"plain": false, "sums": true} {
		t.Run(name, func(t *testing.T) {
			fabrictest.TestMulticast(t, fabrictest.Network{
				Uneven: true,
				Multicast: func(t *testing.T, ranks int) (all []fabric.Multicast) {
					t.Helper()
					for range ranks {
						m, err := verbs.OpenMulticast(open(t), verbs.McastConfig{
							Groups: []netip.Addr{netip.MustParseAddr("239.192.7.7"), netip.MustParseAddr("239.192.7.8")},
							Derive: byName, QKey: 0x1234567, Sums: sums,
						})
						must(t, err)
						t.Cleanup(func() { must(t, m.Close()) })
						all = append(all, m)
					}
					return all
				},
			})
		})
	}
	fabrictest.TestReliable(t, fabrictest.Network{Reliable: func(t *testing.T,
		handlers []fabric.Handler,
	) *fabrictest.World {
		t.Helper()
		var all []*verbs.RC
		var cards []*verbs.Card
		for i := range handlers {
			rc, err := verbs.NewRC(open(t), i, len(handlers), time.Minute)
			must(t, err)
			t.Cleanup(func() { must(t, rc.Close()) })
			all, cards = append(all, rc), append(cards, rc.Card())
		}
		w := &fabrictest.World{Kill: func(rank int) { all[rank].Die() }}
		for _, rc := range all {
			must(t, rc.Introduce(cards))
		}
		for i, rc := range all {
			rc.Start(handlers[i], nil)
			w.Ranks = append(w.Ranks, rc.Reliable())
		}
		return w
	}})
}
