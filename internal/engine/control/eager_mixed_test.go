package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/wire"
)

// Point-to-point calls between eager multicasts need no greeting: they do not wait for one.
func TestEagerBesidePointToPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := eagerNet(2).engines(t)
		for i := range 20 {
			for k := range mcast.WindowCalls / 2 {
				everywhere(t, all, func(r int) Call { return small(i*8+k, 0, r, 100) })
			}
			at := time.Now()
			everywhere(t, all, func(int) Call {
				return Call{Kind: wire.Broadcast, Algo: "binomial", Root: 0, Recv: make([]byte, 100)}
			})
			if took := time.Since(at); took >= 20*time.Millisecond {
				t.Errorf("call %d took %v", i, took)
			}
		}
	})
}
