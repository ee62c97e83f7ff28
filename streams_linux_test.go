package allcast_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// Several receive workers and send workers per rank serve the streams of all chains and subgroups, also
// of communicators with groups of their own.
func TestWorkersPerCore(t *testing.T) {
	const cores = 4
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
	t.Setenv("GOMAXPROCS", strconv.Itoa(cores)) // all of them for each rank
	for _, fault := range []string{"", "drop=2%,dup=2%,reorder=5%,seed=5"} {
		t.Run(fault, func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", fault)
			allcasttest.Run(t, 4, allcast.Options{Subgroups: 3}, func(ctx context.Context, c *allcast.Comm) error {
				half, err := c.Split(ctx, c.Rank()%2, c.Rank())
				if err != nil {
					return err
				}
				defer func() { _ = half.Close() }()
				for i, n := range []int{1, 9_001, 300_007, 4_000_007} {
					for chains := 1; chains <= 4; chains++ {
						for _, on := range []*allcast.Comm{c, half} {
							if err := gatherChains(ctx, on, n, byte(i), chains, 1+(i+chains)%3); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		})
	}
}

// gatherChains makes an Allgather of n bytes per rank and compares every byte.
func gatherChains(ctx context.Context, c *allcast.Comm, n int, seed byte, chains, subgroups int) error {
	var want []byte
	for r := range c.Size() {
		for i := range n {
			want = append(want, byte(r)*29^byte(i)^byte(i>>8)+seed)
		}
	}
	got := make([]byte, len(want))
	err := c.Allgather(ctx, want[c.Rank()*n:(c.Rank()+1)*n], got, allcast.WithAlgorithm("mcast"),
		allcast.WithChains(chains), allcast.WithSubgroups(subgroups))
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%d bytes, %d chains, %d subgroups: other bytes arrived", n, chains, subgroups)
	}
	return err
}
