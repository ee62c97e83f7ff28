package control

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/mem"
	"github.com/allcast/allcast/internal/wire"
)

// streamNet starts engines on a network with streams.
func streamNet(t *testing.T, size int, cfg mem.Config) []*engine {
	t.Helper()
	n := mem.New(size, cfg)
	t.Cleanup(n.Close)
	all := make([]*engine, size)
	for r := range all {
		var err error
		all[r], err = newEngine(Config{
			Config: process(r, size), Secret: []byte("secret"), Multicast: n.Multicast(r),
			Reliable: func(h fabric.Handler) (fabric.Reliable, error) { return n.Reliable(r, h), nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all[r].Close() })
	}
	return all
}

// allgather makes an Allgather by multicast and compares every byte.
func allgather(t *testing.T, all []*engine, block int, seed byte, call Call) {
	t.Helper()
	size := len(all)
	var want []byte
	recv := make([][]byte, size)
	call.Kind, call.Algo, call.Counts = wire.Allgather, Multicast, make([]int64, size)
	for r := range all {
		for i := range block {
			want = append(want, byte(r)*31^byte(i)^byte(i>>8)+seed)
		}
		recv[r], call.Counts[r] = make([]byte, size*block), int64(block)
	}
	everywhere(t, all, func(r int) Call {
		k := call
		k.Send, k.Recv = want[r*block:(r+1)*block], recv[r]
		return k
	})
	for r := range recv {
		if !bytes.Equal(recv[r], want) {
			t.Errorf("rank %d received other bytes", r)
		}
	}
}

// Without loss, super-packets land in place, with any number of chains up to that of the streams: less
// than one chunk in a hundred is copied. An operation may use fewer subgroups than the network has.
func TestChunksOfAllChainsLandInPlace(t *testing.T) {
	const size, block, calls = 9, 40_321, 20
	for _, subgroups := range []int{1, 2} {
		for _, chains := range []int{1, 2, 4, 8} {
			t.Run(fmt.Sprintf("%d chains, %d subgroups", chains, subgroups), func(t *testing.T) {
				all := streamNet(t, size, mem.Config{Subgroups: 2, Streams: 8})
				for i := range calls {
					allgather(t, all, block, byte(i), Call{Chains: chains, Subgroups: subgroups})
				}
				for r, e := range all {
					// On a busy machine a rank may fetch chunks that are late.
					c, fetched := e.data.Counters(), e.Stats().Repaired
					if c.Placed+fetched < calls*(size-1)*block/1000 || 100*c.Copied >= c.Placed {
						t.Errorf("rank %d: %d of %d chunks were copied, and %d fetched", r, c.Copied, c.Placed, fetched)
					}
				}
			})
		}
	}
}

// More chains than streams share the streams. Their chunks may be copied, but arrive.
func TestChainsShareStreams(t *testing.T) {
	for _, streams := range []int{1, 2, 3} {
		all := streamNet(t, 7, mem.Config{Streams: streams})
		for chains := 1; chains <= 7; chains++ {
			allgather(t, all, 5003, byte(chains), Call{Chains: chains})
		}
	}
}
