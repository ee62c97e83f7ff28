package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/testenv"
)

// A trigger ends a context when its rank enters a phase.
type trigger struct {
	armed atomic.Pointer[arming]
	mu    sync.Mutex
	fired map[string]int // number of contexts that ended, by phase
}

// An arming is the phase that a trigger waits for, and the context that it ends.
type arming struct {
	phase string
	end   context.CancelFunc
}

func (g *trigger) watch(phase string) {
	if a := g.armed.Load(); a != nil && a.phase == phase && g.armed.CompareAndSwap(a, nil) {
		a.end()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.fired == nil {
			g.fired = map[string]int{}
		}
		g.fired[phase]++
	}
}

// cancelled checks the error of a call that rank has cancelled, on that rank or on another one.
func cancelled(err error, c *allcast.Comm, rank int) error {
	var re *allcast.RankError
	switch {
	case !errors.As(err, &re) || !errors.Is(err, allcast.ErrAborted),
		re.Rank != rank, re.WorldRank != c.WorldRank(rank):
		return fmt.Errorf("got %w, want an error that names rank %d as the canceller", err, rank)
	case re.Op == "" || re.Phase == "" || re.Missing == "":
		return fmt.Errorf("operation %q, phase %q, missing %q: %w", re.Op, re.Phase, re.Missing, err)
	case errors.Is(err, context.Canceled) != (c.Rank() == rank):
		return fmt.Errorf("the context ended on rank %d, and rank %d got %w", rank, c.Rank(), err)
	}
	return nil
}

// TestCancel ends the context of a blocking call that cannot complete. This breaks the communicator of
// the call, and no other.
func TestCancel(t *testing.T) {
	const canceller, absent, size = 1, 3, 4
	ops := map[string]func(ctx context.Context, c *allcast.Comm, buf []byte) error{
		"broadcast": func(ctx context.Context, c *allcast.Comm, buf []byte) error {
			return c.Broadcast(ctx, buf, 0)
		},
		"allgather": func(ctx context.Context, c *allcast.Comm, buf []byte) error {
			return c.Allgather(ctx, nil, buf)
		},
		"allgatherv": func(ctx context.Context, c *allcast.Comm, buf []byte) error {
			return c.Allgatherv(ctx, nil, buf, []int{len(buf), 0, 0, 0})
		},
		"reduce-scatter": func(ctx context.Context, c *allcast.Comm, buf []byte) error {
			n := len(buf) / size
			return c.ReduceScatter(ctx, buf, buf[n*c.Rank():][:n], allcast.Float32, allcast.Sum)
		},
		"allreduce": func(ctx context.Context, c *allcast.Comm, buf []byte) error {
			return c.Allreduce(ctx, nil, buf, allcast.Float32, allcast.Sum)
		},
		"barrier": func(ctx context.Context, c *allcast.Comm, _ []byte) error { return c.Barrier(ctx) },
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			// The context ends when all ranks but the absent one are in the call, the second of a new communicator.
			var inside sync.WaitGroup
			inside.Add(size - 1)
			var entered [size]sync.Once
			hooked := joinhook.With(t.Context(), joinhook.Hooks{Watch: func(rank int, comm uint32, seq uint64, _ string) {
				if comm > 1 && seq == 1 && rank != absent {
					entered[rank].Do(inside.Done)
				}
			}})
			errs := allcasttest.JoinAll(hooked, make([]allcast.Options, size),
				func(ctx context.Context, world *allcast.Comm) error {
					c, err := world.Dup(ctx)
					if err != nil {
						return err
					}
					if c.Rank() == absent {
						return shrinkAndUse(ctx, world, c)
					}
					buf := make([]byte, 400_000)   // an eager call would complete without the absent rank
					other, err := c.StartBarrier() // cancelled together with the next call
					if err != nil {
						return err
					}
					if c.Rank() == canceller {
						call, cancel := context.WithCancel(ctx)
						defer cancel()
						go func() {
							inside.Wait()
							cancel()
						}()
						ended := expiring{call}
						err := op(ended, c, buf)
						if !errors.Is(err, context.DeadlineExceeded) || !abortedBy(err, canceller) {
							return fmt.Errorf("the context of this rank has ended: %w", err)
						}
						if later := op(ctx, c, buf); later != err {
							return fmt.Errorf("a later call got %w, want %w", later, err)
						}
						if later := op(ended, c, buf); later != err {
							return fmt.Errorf("a later call with the same context got %w, want %w", later, err)
						}
						if _, later := c.StartBarrier(); later != err {
							return fmt.Errorf("a later start got %w, want %w", later, err)
						}
					} else if err := cancelled(op(ctx, c, buf), c, canceller); err != nil {
						return err
					}
					if err := other.Wait(ctx); !abortedBy(err, canceller) {
						return fmt.Errorf("the operation before it: %w", err)
					}
					return shrinkAndUse(ctx, world, c)
				})
			for rank, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

// expiring is a context that says at its end that its deadline has passed.
type expiring struct{ context.Context }

func (e expiring) Err() error {
	if e.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// abortedBy reports whether an error names the rank as the one that aborted.
func abortedBy(err error, rank int) bool {
	var re *allcast.RankError
	return errors.Is(err, allcast.ErrAborted) && errors.As(err, &re) && re.Rank == rank
}

// shrinkAndUse shrinks a broken communicator and checks that the ranks still communicate.
func shrinkAndUse(ctx context.Context, world, c *allcast.Comm) error {
	d, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		calltest.Allgather(ctx, d, 1, 5000, "mcast"), calltest.Allgather(ctx, world, 2, 5000, "mcast"),
		d.Close(), c.Close())
}

// A call whose context has already ended starts nothing, and takes no place in the order of calls.
func TestCancelBeforeStart(t *testing.T) {
	allcasttest.Run(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		buf := make([]byte, 12)
		if c.Rank() == 1 {
			for i, err := range []error{
				c.Barrier(ended),
				c.Broadcast(ended, buf, 0),
				c.Allgather(ended, nil, buf),
				c.Allgatherv(ended, nil, buf, []int{4, 4, 4}),
				c.ReduceScatter(ended, buf, buf[:4], allcast.Int32, allcast.Sum),
				c.Allreduce(ended, nil, buf, allcast.Int32, allcast.Sum),
			} {
				if !errors.Is(err, context.Canceled) || errors.Is(err, allcast.ErrAborted) {
					return fmt.Errorf("method %d: %w", i, err)
				}
			}
		}
		return calltest.Allgather(ctx, c, 1, 50_000, "mcast")
	})
}

// The context of Request.Wait ends the waiting, and nothing else.
func TestWaitIsNotCancel(t *testing.T) {
	const size, late, n = 3, 2, 100_000
	var gaveUp sync.WaitGroup
	gaveUp.Add(size - 1)
	allcasttest.Run(t, size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == late {
			gaveUp.Wait()
		}
		got := make([]byte, n*c.Size())
		r, err := c.StartAllgather(calltest.Pattern(1, c.Rank(), n), got, allcast.WithAlgorithm("mcast"))
		if err != nil {
			return err
		}
		if c.Rank() != late {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			err := r.Wait(ended)
			gaveUp.Done()
			if !errors.Is(err, context.Canceled) || errors.Is(err, allcast.ErrAborted) || r.Err() != nil {
				return fmt.Errorf("the context of Wait has ended: %w, %w", err, r.Err())
			}
		}
		return calltest.Equal(calltest.Wait(ctx, r, nil, "mcast"), got, calltest.Gathered(1, c.Size(), n))
	})
}

// rounds decides how many rounds the ranks of one process make, the same number on all of them.
type rounds struct {
	minRounds, maxRounds int
	complete             func() bool // reports whether minRounds are enough
	mu                   sync.Mutex
	decided              []bool
}

// more reports whether round nth takes place.
func (r *rounds) more(nth int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if nth == len(r.decided) {
		r.decided = append(r.decided, nth < r.minRounds || nth < r.maxRounds && !r.complete())
	}
	return r.decided[nth]
}

// cancelRounds is the minimum number of calls that TestCancelEverywhere cancels on each datapath.
func cancelRounds() int {
	switch {
	case !testenv.Soaking():
		return 100 // about one for each shape, phase and victim
	case testenv.Race:
		return 400
	}
	return 200 // most calls run with the race detector, which finds more per call
}

// A cancelShape is a call, and the phases in which its context ends.
type cancelShape struct {
	op, algo string
	phases   []string
}

// TestCancelEverywhere cancels calls in all their phases, with losses. The caller overwrites its buffers
// as soon as the call returns, and frees them. The test therefore notices a later write, or crashes. A
// rank gets all data, or an error that names the rank that cancelled.
func TestCancelEverywhere(t *testing.T) {
	t.Setenv("ALLCAST_FAULT", "drop=10%,dup=2%,reorder=5%,seed=5")
	shapes := []cancelShape{
		{"broadcast", "mcast", []string{"barrier", "multicast", "fetch", "handshake", "lingering"}},
		{"allgather", "mcast", []string{"barrier", "activation", "multicast", "fetch", "handshake", "lingering"}},
		{"allgather", "ring", []string{"transfer", "put"}},
		{"allreduce", "ring", []string{"transfer", "put"}},
		{"reduce-scatter", "ring", []string{"transfer", "put"}},
	}
	calltest.Datapaths(t, func(t *testing.T, o allcast.Options) {
		t.Helper()
		const size, n = 3, 40_000
		var cuts, wholes atomic.Int64
		triggers := make([]trigger, size)
		ctx := joinhook.With(t.Context(), joinhook.Hooks{Watch: func(rank int, _ uint32, _ uint64, phase string) {
			triggers[rank].watch(phase)
		}})
		opts := slices.Repeat([]allcast.Options{o}, size)
		fired := func() map[string]int {
			all := map[string]int{}
			for r := range triggers {
				g := &triggers[r]
				g.mu.Lock()
				for phase, n := range g.fired {
					all[phase] += n
				}
				g.mu.Unlock()
			}
			return all
		}
		// Not every operation enters every phase.
		all := &rounds{minRounds: cancelRounds(), maxRounds: 20 * cancelRounds(), complete: func() bool {
			in := fired()
			return !slices.ContainsFunc(shapes, func(s cancelShape) bool {
				return slices.ContainsFunc(s.phases, func(phase string) bool { return in[phase] == 0 })
			})
		}}
		for r, err := range allcasttest.JoinAll(ctx, opts, func(ctx context.Context, world *allcast.Comm) error {
			kept := &markers{}
			for round := 0; all.more(round); round++ {
				s := shapes[round%len(shapes)]
				x := round / len(shapes)
				victim, phase := x%size, s.phases[x/size%len(s.phases)]
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				ended, cancel := context.WithCancel(ctx)
				if c.Rank() == victim {
					triggers[c.Rank()].armed.Store(&arming{phase, cancel})
				}
				whole, err := cancelledCall(ended, c, kept, uint64(round), n, s.op, s.algo, victim)
				triggers[c.Rank()].armed.Store(nil)
				cancel()
				if err != nil {
					return fmt.Errorf("round %d, %s by %s, rank %d cancels at %s: %w",
						round, s.op, s.algo, victim, phase, err)
				}
				if whole {
					wholes.Add(1)
				} else {
					cuts.Add(1)
				}
				if err := c.Close(); err != nil {
					return err
				}
			}
			return kept.check()
		}) {
			if err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		t.Logf("%d calls failed and %d completed; contexts that ended, by phase: %v",
			cuts.Load(), wholes.Load(), fired())
		if !all.complete() {
			t.Error("no context ended in some phase")
		}
		if cuts.Load() == 0 || wholes.Load() == 0 {
			t.Errorf("%d calls failed and %d completed: want at least one of each", cuts.Load(), wholes.Load())
		}
	})
}

// cancelledCall makes a call that rank victim may cancel. It reports whether the call completed on this rank.
func cancelledCall(
	ctx context.Context, c *allcast.Comm, kept *markers, seed uint64, n int, op, algo string, victim int,
) (whole bool, err error) {
	alloc := seed%2 == 0
	in, out, want := cancelBuffers(c, seed, n, op, victim)
	if alloc {
		for _, b := range []*[]byte{&in, &out} {
			mem, err := c.Alloc(len(*b))
			if err != nil {
				return false, err
			}
			copy(mem, *b)
			*b = mem
		}
	}
	how := allcast.WithAlgorithm(algo)
	switch op {
	case "broadcast":
		err = c.Broadcast(ctx, out, victim, how)
	case "allgather":
		err = c.Allgather(ctx, in, out, how)
	case "allreduce":
		err = c.Allreduce(ctx, in, out, allcast.Float32, allcast.Sum, how)
	case "reduce-scatter":
		err = c.ReduceScatter(ctx, in, out, allcast.Float32, allcast.Sum, how)
	}
	if whole = err == nil; whole {
		err = calltest.Equal(nil, out, want)
	} else {
		err = cancelled(err, c, victim)
	}
	for _, b := range [][]byte{in, out} {
		kept.mark(b)
		if alloc {
			err = errors.Join(err, c.Free(b))
		} else {
			kept.keep(b)
		}
	}
	return whole, err
}

// cancelBuffers returns the buffers of an operation, and the content of out after it has completed.
func cancelBuffers(c *allcast.Comm, seed uint64, n int, op string, root int) (in, out, want []byte) {
	total := func(n int) []byte { return allcast.Bytes(calltest.Sum(seed, c.Size(), n)) }
	switch op {
	case "broadcast":
		out, want = make([]byte, n), calltest.Pattern(seed, root, n)
		if c.Rank() == root {
			copy(out, want)
		}
	case "allgather":
		in, out = calltest.Pattern(seed, c.Rank(), n), make([]byte, n*c.Size())
		want = calltest.Gathered(seed, c.Size(), n)
	case "allreduce":
		in, out, want = allcast.Bytes(calltest.Numbers(seed, c.Rank(), n/4)), make([]byte, n), total(n/4)
	case "reduce-scatter":
		in, out = allcast.Bytes(calltest.Numbers(seed, c.Rank(), n/4*c.Size())), make([]byte, n)
		want = total(n / 4 * c.Size())[n*c.Rank():][:n]
	}
	return in, out, want
}

// markers are buffers of calls that have returned. They must not change.
type markers struct{ bufs [][]byte }

const marker = 0xEE

func (m *markers) mark(b []byte) {
	for i := range b {
		b[i] = marker
	}
}

// keep remembers a marked buffer for check. It checks and forgets the oldest one if there are many.
func (m *markers) keep(b []byte) {
	const limit = 64
	if m.bufs = append(m.bufs, b); len(m.bufs) > limit && bytes.Count(m.bufs[0], []byte{marker}) == len(m.bufs[0]) {
		m.bufs = m.bufs[1:]
	}
}

func (m *markers) check() error {
	for _, b := range m.bufs {
		if bytes.Count(b, []byte{marker}) != len(b) {
			return errors.New("a buffer was written after its call had returned")
		}
	}
	return nil
}
