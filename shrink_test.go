package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// Shrink of a healthy communicator duplicates it.
func TestShrinkHealthy(t *testing.T) {
	allcasttest.Run(t, 5, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Shrink(ctx)
		if err != nil {
			return err
		}
		if c.Size() != 5 || c.Rank() != world.Rank() {
			return fmt.Errorf("rank %d of %d", c.Rank(), c.Size())
		}
		return errors.Join(
			calltest.Allgather(ctx, c, 1, 50_000, "mcast"), calltest.Allgather(ctx, world, 2, 50_000, "mcast"),
			calltest.Allgather(ctx, c, 3, 5000, "ring"), c.Close())
	})
}

func TestShrinkAfterAbort(t *testing.T) {
	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 2 {
			err = c.Abort()
		} else if err = c.Barrier(ctx); errors.Is(err, allcast.ErrAborted) {
			err = nil
		}
		if err != nil {
			return err
		}
		d, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); !errors.Is(err, allcast.ErrAborted) {
			return fmt.Errorf("the old communicator works again: %w", err)
		}
		return errors.Join(c.Close(), calltest.Allgather(ctx, d, 4, 100_000, "mcast"))
	})
}

// Ranks vanish one after the other, including rank 0. The others continue.
func TestShrinkAfterDeaths(t *testing.T) {
	for _, algo := range []string{"mcast", "ring"} {
		t.Run(algo, func(t *testing.T) {
			allcasttest.Run(t, 6, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
				c := world
				for gen, victim := range []int{0, 4, 5} {
					var err error
					for i := uint64(0); err == nil; i++ {
						if err = calltest.Allgather(ctx, c, i, 30_000, algo); err == nil && world.Rank() == victim {
							world.Vanish()
							return nil
						}
					}
					var re *allcast.RankError
					if !errors.As(err, &re) || re.WorldRank != victim {
						return fmt.Errorf("rank %d vanished: %w", victim, err)
					}
					next, err := c.Shrink(ctx)
					if err != nil {
						return err
					}
					if next.Size() != 5-gen {
						return fmt.Errorf("%d ranks are left, want %d", next.Size(), 5-gen)
					}
					if c != world {
						if err := c.Close(); err != nil {
							return err
						}
					}
					c = next
				}
				return calltest.Allgather(ctx, c, 7, 30_000, algo)
			})
		})
	}
}

// All ranks get the same error, which names the living rank that did not call Shrink. Then they try again.
func TestShrinkMissing(t *testing.T) {
	const size, absent = 4, 1
	for name, early := range map[string]bool{"timeout": false, "context": true} {
		t.Run(name, func(t *testing.T) {
			var o allcast.Options
			if !early {
				testenv.Soak(t, "a timeout of 1 s ends the wait, as in TestAgreeWithoutOne of internal/node")
				o.Timeout = time.Second
			}
			failed := make(chan struct{})
			var others sync.WaitGroup
			others.Add(size - 1)
			go func() { others.Wait(); close(failed) }()
			allcasttest.Run(t, size, o, func(ctx context.Context, world *allcast.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				mine := ctx
				if world.Rank() == absent {
					<-failed
				} else if early && world.Rank() == 2 {
					ended, cancel := context.WithCancel(ctx)
					cancel()
					mine = ended
				}
				_, err = c.Shrink(mine)
				if world.Rank() != absent {
					others.Done()
				}
				var se *allcast.ShrinkError
				if !errors.Is(err, allcast.ErrMissing) || !errors.As(err, &se) || !slices.Contains(se.Ranks, absent) {
					return fmt.Errorf("rank %d did not call Shrink: %w", absent, err)
				}
				if ended := mine.Err(); ended != nil && !errors.Is(err, ended) {
					return fmt.Errorf("the context of this rank ended: %w", err)
				}
				if !early && !slices.Equal(se.Ranks, []int{absent}) {
					return fmt.Errorf("blamed: %v", se.Ranks)
				}
				<-failed
				d, err := c.Shrink(ctx)
				if err != nil {
					return fmt.Errorf("second try: %w", err)
				}
				return calltest.Allgather(ctx, d, 1, 1000, "ring")
			})
		})
	}
}

func TestClosedCommunicator(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(calltest.Allgather(ctx, c, 1, 10_000, "mcast"), c.Close(), c.Close()); err != nil {
			return err
		}
		buf := make([]byte, 12)
		_, dup := c.Dup(ctx)
		_, shrink := c.Shrink(ctx)
		_, split := c.Split(ctx, 1, 1)
		for i, err := range []error{
			dup, shrink, split, c.Abort(), c.Barrier(ctx), c.Broadcast(ctx, buf, 0), c.Allgather(ctx, nil, buf),
			c.Allgatherv(ctx, nil, buf, []int{4, 4, 4}), c.ReduceScatter(ctx, buf, buf[:4], allcast.Int32, allcast.Sum),
			c.Allreduce(ctx, nil, buf, allcast.Int32, allcast.Sum),
		} {
			if !errors.Is(err, allcast.ErrClosed) {
				return fmt.Errorf("method %d: %w", i, err)
			}
		}
		return calltest.Allgather(ctx, world, 1, 10_000, "mcast")
	})
}

// A call on a communicator that another rank has closed fails and names that rank.
func TestClosedByAnother(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		if world.Rank() == 1 {
			return c.Close()
		}
		err = c.Allgather(ctx, nil, make([]byte, 3000), allcast.WithAlgorithm("mcast"))
		var re *allcast.RankError
		if !errors.Is(err, allcast.ErrClosed) || !errors.As(err, &re) || re.Rank != 1 {
			return fmt.Errorf("rank 1 has closed it: %w", err)
		}
		return nil
	})
}

// Closing a communicator does not interrupt its running operations.
func TestCloseDuringOperations(t *testing.T) {
	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		const n = 300_000
		got := make([]byte, n*c.Size())
		r, err := c.StartAllgather(calltest.Pattern(1, c.Rank(), n), got, allcast.WithAlgorithm("mcast"))
		if err != nil {
			return err
		}
		if err := errors.Join(c.Close(), r.Wait(ctx)); err != nil {
			return err
		}
		if !bytes.Equal(got, calltest.Gathered(1, c.Size(), n)) {
			return errors.New("mcast: wrong data")
		}
		return nil
	})
}

// Closed communicators use no memory.
func TestCloseFrees(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 30
	}
	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		before := world.Comms()
		for i := range rounds {
			c, err := world.Split(ctx, world.Rank()%2, 0)
			if err != nil {
				return err
			}
			d, err := c.Shrink(ctx)
			if err != nil {
				return err
			}
			switch {
			case i%4 == 0:
				err = calltest.Allgather(ctx, d, uint64(i), 5000, "mcast")
			case i%5 == 0:
				err = d.Abort()
			}
			if err = errors.Join(err, c.Close(), d.Close()); err != nil {
				return err
			}
		}
		if !testenv.Soon(func() bool { return world.Comms() == before }) {
			return fmt.Errorf("%d communicators before, %d after", before, world.Comms())
		}
		return world.Barrier(ctx)
	})
}

// The error on every rank shows both calls, whichever rank found the mismatch.
func TestMismatchShowsBothCalls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		call  func(ctx context.Context, c *allcast.Comm, odd bool) error
		wants []string
	}{
		{"size", func(ctx context.Context, c *allcast.Comm, odd bool) error {
			n := 3000
			if odd {
				n = 6000
			}
			return c.Allgather(ctx, nil, make([]byte, n), allcast.WithAlgorithm("mcast"))
		}, []string{"rank 1 called allgather of 6000 bytes", "called allgather of 3000 bytes", "algorithm mcast"}},
		{"root", func(ctx context.Context, c *allcast.Comm, odd bool) error {
			root := 0
			if odd {
				root = 2
			}
			return c.Broadcast(ctx, make([]byte, 400_000), root, allcast.WithAlgorithm("mcast"))
		}, []string{"rank 1 called broadcast of 400000 bytes from root 2", "from root 0"}},
		{"algorithm", func(ctx context.Context, c *allcast.Comm, odd bool) error {
			algo := "ring"
			if odd {
				algo = "mcast"
			}
			return c.Allgather(ctx, nil, make([]byte, 3000), allcast.WithAlgorithm(algo))
		}, []string{"rank 1 called allgather of 3000 bytes, algorithm mcast", "algorithm ring"}},
		{"type", func(ctx context.Context, c *allcast.Comm, odd bool) error {
			typ, op := allcast.Float32, allcast.Sum
			if odd {
				typ, op = allcast.Int32, allcast.Max
			}
			return c.Allreduce(ctx, nil, make([]byte, 2_400_000), typ, op, allcast.WithAlgorithm("ring"))
		}, []string{"rank 1 called allreduce of 2400000 bytes, max of i32, algorithm ring", "sum of f32"}},
		{"operation", func(ctx context.Context, c *allcast.Comm, odd bool) error {
			if odd {
				return c.Barrier(ctx)
			}
			return c.Broadcast(ctx, make([]byte, 1000), 0, allcast.WithAlgorithm("mcast"))
		}, []string{"rank 1 called barrier", "called broadcast of 1000 bytes from root 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				for err == nil { // a rank whose call completed learns of the mismatch in its next call
					err = tt.call(ctx, c, c.Rank() == 1)
				}
				if !errors.Is(err, allcast.ErrMismatch) {
					return err
				}
				for _, w := range tt.wants {
					// Either of the two ranks may have found the mismatch.
					if !strings.Contains(err.Error(), w) {
						return fmt.Errorf("%w\nwant %q", err, w)
					}
				}
				return nil
			})
		})
	}
}
