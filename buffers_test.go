package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// TestBuffersUntouchedAfterDone aborts some of many concurrent operations on several communicators, with
// faults. Every request must end, and nothing may touch its buffer afterwards.
func TestBuffersUntouchedAfterDone(t *testing.T) {
	t.Setenv("ALLCAST_FAULT", "drop=3%,dup=3%,reorder=10%,seed=3")
	const comms, flight, n, mark = 4, 6, 60_000, 0xEE
	algos := []string{"mcast", "ring", "mcast", "linear"}
	for round := range uint64(4) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			var mu sync.Mutex
			var bufs [][]byte // buffers of requests that have ended, filled with mark
			allcasttest.Run(t, 4, allcast.Options{Subgroups: 2}, func(ctx context.Context, world *allcast.Comm) error {
				var watch sync.WaitGroup
				rng := rand.New(rand.NewPCG(round, uint64(world.Rank())))
				var dups []*allcast.Comm
				for range comms {
					c, err := world.Dup(ctx)
					if err != nil {
						return err
					}
					dups = append(dups, c)
				}
				errs := make(chan error, comms*flight)
				for k, c := range dups {
					for i := range flight {
						buf := make([]byte, n*c.Size())
						copy(buf[n*c.Rank():], calltest.Pattern(uint64(i), c.Rank(), n))
						r, err := c.StartAllgather(nil, buf,
							allcast.WithAlgorithm(algos[k]), allcast.WithSubgroups(1+i%2))
						if err != nil {
							return err
						}
						watch.Go(func() {
							<-r.Done()
							var re *allcast.RankError
							switch err := r.Err(); {
							case err == nil:
								if !bytes.Equal(buf, calltest.Gathered(uint64(i), c.Size(), n)) {
									errs <- errors.New("wrong data")
								}
							case !errors.Is(err, allcast.ErrClosed) && !errors.As(err, &re):
								errs <- err
							}
							for i := range buf {
								buf[i] = mark
							}
							mu.Lock()
							defer mu.Unlock()
							bufs = append(bufs, buf)
						})
					}
					if world.Rank() == int(round) && rng.IntN(4) > 0 {
						if err := dups[rng.IntN(k+1)].Abort(); err != nil {
							return err
						}
					}
				}
				watch.Wait()
				close(errs)
				for err := range errs {
					return err
				}
				return nil
			})
			if len(bufs) != 4*comms*flight {
				t.Errorf("%d of %d requests ended", len(bufs), 4*comms*flight)
			}
			for _, b := range bufs {
				if bytes.Count(b, []byte{mark}) != len(b) {
					t.Fatal("a buffer was written after its request had ended")
				}
			}
		})
	}
}
