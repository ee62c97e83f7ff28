package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/testenv"
)

// A rank whose context has ended before the call fails the Subset on all members, and the next Subset works.
func TestSubsetWithEndedContext(t *testing.T) {
	members := []int{1, 2, 0}
	for quitter := range members {
		t.Run(fmt.Sprint("rank ", quitter), func(t *testing.T) {
			allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				call, cancel := context.WithCancel(ctx)
				defer cancel()
				want := allcast.ErrAborted
				if c.Rank() == quitter {
					cancel()
					want = context.Canceled
				}
				if _, err := c.Subset(call, members, "x"); !errors.Is(err, want) {
					return fmt.Errorf("error %v, want %w", err, want)
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

// A leader that gives up releases the members that wait for it, even if another member never calls Subset.
func TestSubsetWithoutMember(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		members := []int{0, 1, 2}
		switch c.Rank() {
		case 0:
			go func() {
				_, _ = c.Recv(ctx, nil, 2, 1)
				cancel()
			}()
			if _, err := c.Subset(call, members, "x"); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the rank that gave up: %v", err)
			}
		case 2:
			if err := c.Send(ctx, nil, 0, 1); err != nil {
				return err
			}
			if _, err := c.Subset(ctx, members, "x"); !errors.Is(err, allcast.ErrAborted) {
				return fmt.Errorf("error %v, want ErrAborted", err)
			}
		}
		return c.Barrier(ctx)
	})
}

// The list of members belongs to the caller when Subset returns, even if it has failed.
func TestSubsetCallerReusesMembers(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		call, cancel := context.WithCancel(ctx)
		defer cancel()
		if c.Rank() == 0 {
			cancel()
		}
		members := []int{0, 1}
		if _, err := c.Subset(call, members, "x"); err == nil {
			return errors.New("no error")
		}
		members[0], members[1] = -1, -1
		_, err := c.Subset(ctx, []int{0, 1}, "x")
		return err
	})
}

// A rank that gives up may close the parent at once.
func TestSubsetQuitterClosesParent(t *testing.T) {
	for quitter := range 2 {
		t.Run(fmt.Sprint("rank ", quitter), func(t *testing.T) {
			allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				parent, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				if c.Rank() == quitter {
					call, cancel := context.WithCancel(ctx)
					cancel()
					_, err := parent.Subset(call, []int{0, 1}, "x")
					if !errors.Is(err, context.Canceled) {
						return fmt.Errorf("the rank that gave up: %v", err)
					}
					return errors.Join(parent.Close(), c.Barrier(ctx))
				}
				if err := c.Barrier(ctx); err != nil {
					return err
				}
				_, err = parent.Subset(ctx, []int{0, 1}, "x")
				if !errors.Is(err, allcast.ErrAborted) && !errors.Is(err, allcast.ErrClosed) {
					return fmt.Errorf("error %v, want ErrAborted or ErrClosed", err)
				}
				return parent.Close()
			})
		})
	}
}

// Ranks give up at random moments. Each Subset ends, its errors say that Subset failed, and a communicator that
// only some ranks got is aborted.
func TestSubsetsGivenUpAtRandom(t *testing.T) {
	const ranks = 3
	rounds := 20 // a rank that waits in vain for the others' test of the groups does so for 2 s
	if testenv.Soaking() {
		rounds = 200
	}
	seed := testenv.Seed(t)
	allcasttest.Run(t, ranks, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		random := rand.New(rand.NewPCG(seed, uint64(c.Rank())))
		one := make([]byte, 1)
		for i := range rounds {
			call, cancel := context.WithCancel(ctx)
			if random.IntN(2) == 0 {
				time.AfterFunc(time.Duration(random.IntN(300))*time.Microsecond, cancel)
			}
			sub, err := c.Subset(call, []int{0, 1, 2}, "x")
			cancel()
			switch {
			case err != nil:
				failed, ok := errors.AsType[*allcast.RankError](err)
				if !ok || failed.Op != "subset" || !errors.Is(err, allcast.ErrAborted) {
					return fmt.Errorf("round %d: %w, want a subset that was given up", i, err)
				}
			case sub.Rank() == 0:
				for to := 1; to < ranks; to++ {
					_ = sub.Send(ctx, one, to, 0)
				}
			default: // it ends even if another rank has no communicator
				if _, err := sub.Recv(ctx, one, 0, 0); err != nil && !errors.Is(err, allcast.ErrAborted) {
					return fmt.Errorf("round %d: recv: %w", i, err)
				}
			}
			if err := errors.Join(c.Barrier(ctx), sub.Close()); err != nil {
				return fmt.Errorf("round %d: %w", i, err)
			}
		}
		return nil
	})
}

// The parent breaks while the leader tells the other member that all have the new communicator. That member gives up.
// On both, the error names the rank that broke the parent, which is no member.
func TestSubsetNamesWhoBrokeTheParent(t *testing.T) {
	const leader, member, culprit = 0, 1, 2
	agreed, gaveUp := make(chan struct{}), make(chan struct{})
	sent := 0
	ctx := joinhook.With(t.Context(), joinhook.Hooks{Watch: func(rank int, comm uint32, _ uint64, phase string) {
		if rank == leader && comm > 1 && phase == "put" {
			if sent++; sent == 2 { // the first message had the number of the new communicator
				close(agreed)
				<-gaveUp
			}
		}
	}})
	named := func(err error) error {
		if re, ok := errors.AsType[*allcast.RankError](err); !ok || re.WorldRank != culprit {
			return fmt.Errorf("error %w, want one that names rank %d", err, culprit)
		}
		return nil
	}
	opts := slices.Repeat([]allcast.Options{{NoMulticast: true}}, 3)
	for rank, err := range allcasttest.JoinAll(ctx, opts, func(ctx context.Context, c *allcast.Comm) error {
		parent, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil { // so that the first messages are those of Subset
			return err
		}
		switch c.Rank() {
		case culprit:
			<-agreed
			err = parent.Abort()
		case member:
			_, err = parent.Subset(ctx, []int{leader, member}, "x")
			close(gaveUp)
			err = named(err)
		case leader:
			var sub *allcast.Comm
			if sub, err = parent.Subset(ctx, []int{leader, member}, "x"); err == nil {
				err = named(sub.Barrier(ctx))
			}
		}
		return errors.Join(err, c.Barrier(ctx))
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
