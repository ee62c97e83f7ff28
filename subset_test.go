package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// Disjoint and overlapping subsets are made at the same time, each by its members only, in the given order.
func TestSubset(t *testing.T) {
	allcasttest.Run(t, 5, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		lists := [][]int{{0, 1, 2}, {4, 3}, {2, 0, 4}, {1, 0, 2}, {3}}
		errs := make(chan error, len(lists))
		for i, members := range lists {
			go func() {
				at := slices.Index(members, c.Rank())
				if at < 0 {
					errs <- nil
					return
				}
				errs <- func() error {
					sub, err := c.Subset(ctx, members, "subset")
					if err != nil {
						return err
					}
					if sub.Rank() != at || sub.Size() != len(members) || sub.WorldRank(0) != members[0] {
						return fmt.Errorf("subset %v: rank %d of %d on rank %d", members, sub.Rank(), sub.Size(), c.Rank())
					}
					return errors.Join(calltest.Allgather(ctx, sub, uint64(i), 5000, "ring"), sub.Close())
				}()
			}()
		}
		var all error
		for range lists {
			all = errors.Join(all, <-errs)
		}
		return all
	})
}

// Tags tell subsets of the same ranks apart that are made at the same time, and a subset can be made again.
func TestSubsetTags(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		const n = 4
		errs := make(chan error, n)
		for i := range n {
			go func() {
				tag := fmt.Sprint((i + c.Rank()) % n) // in another order on each rank
				sub, err := c.Subset(ctx, []int{2, 1, 0}, tag)
				if err == nil {
					err = calltest.Allgather(ctx, sub, 7, 100, "ring")
				}
				errs <- err
			}()
		}
		var all error
		for range n {
			all = errors.Join(all, <-errs)
		}
		for range 3 {
			sub, err := c.Subset(ctx, []int{0, 1, 2}, "again")
			if err == nil {
				err = errors.Join(calltest.Allgather(ctx, sub, 8, 100, "ring"), sub.Close())
			}
			all = errors.Join(all, err)
		}
		return all
	})
}

// A rank that gives up fails the Subset on its members, and the parent stays intact for everybody. The next
// Subset of the same ranks works.
func TestSubsetGivenUp(t *testing.T) {
	for quitter := range 3 {
		t.Run(fmt.Sprint("rank ", quitter), func(t *testing.T) {
			allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				members := []int{0, 1, 2}
				late := (quitter + 1) % 3 // keeps the others waiting until the quitter has given up
				if c.Rank() < 3 {
					call := ctx
					if c.Rank() == quitter {
						var cancel context.CancelFunc
						call, cancel = context.WithCancel(ctx)
						go func() {
							_, _ = c.Recv(ctx, nil, 3, 1)
							cancel()
						}()
						if err := c.Send(ctx, nil, 3, 0); err != nil {
							return err
						}
					}
					if c.Rank() == late {
						if _, err := c.Recv(ctx, nil, quitter, 2); err != nil {
							return err
						}
					}
					_, err := c.Subset(call, members, "x")
					if c.Rank() == quitter {
						if !errors.Is(err, context.Canceled) || !errors.Is(err, allcast.ErrAborted) {
							return fmt.Errorf("the rank that gave up: %v", err)
						}
						if err := c.Send(ctx, nil, late, 2); err != nil {
							return err
						}
					}
					var failed *allcast.RankError
					if !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &failed) || failed.Rank != quitter {
						return fmt.Errorf("error %v, want ErrAborted by rank %d", err, quitter)
					}
				} else {
					if _, err := c.Recv(ctx, nil, quitter, 0); err != nil {
						return err
					}
					if err := c.Send(ctx, nil, quitter, 1); err != nil {
						return err
					}
				}
				if err := calltest.Allgather(ctx, c, 1, 1000, "ring"); err != nil {
					return err
				}
				if c.Rank() == 3 {
					return nil
				}
				sub, err := c.Subset(ctx, members, "x")
				if err != nil {
					return err
				}
				return calltest.Allgather(ctx, sub, 2, 1000, "ring")
			})
		})
	}
}

// Bad lists of members start nothing.
func TestSubsetOfNobody(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for _, members := range [][]int{nil, {1 - c.Rank()}, {0, 1, 2}, {0, 1, 0}, {-1, 0, 1}} {
			if _, err := c.Subset(ctx, members, ""); !errors.Is(err, allcast.ErrInvalid) {
				return fmt.Errorf("members %v: error %v, want ErrInvalid", members, err)
			}
		}
		return c.Barrier(ctx)
	})
}
