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
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/testenv"
)

// A trigger ends a context when this rank comes to a phase.
type trigger struct {
	armed atomic.Pointer[arming]
	mu    sync.Mutex
	fired map[string]int // by phase
}

// arming is what a trigger waits for.
type arming struct {
	phase string
	end   context.CancelFunc
}

func (g *trigger) watch(_ uint32, _ uint64, what string) {
	if a := g.armed.Load(); a != nil && a.phase == what && g.armed.CompareAndSwap(a, nil) {
		a.end()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.fired == nil {
			g.fired = map[string]int{}
		}
		g.fired[what]++
	}
}

// cancelled checks the error of a call that rank has cancelled, on rank itself or on another one.
func cancelled(err error, c *allcast.Comm, rank int) error {
	var re *allcast.RankError
	switch {
	case !errors.As(err, &re) || !errors.Is(err, allcast.ErrAborted) || re.Rank != rank || re.WorldRank != c.WorldRank(rank):
		return fmt.Errorf("got %w, want that rank %d cancelled", err, rank)
	case re.Op == "" || re.Phase == "" || re.Missing == "":
		return fmt.Errorf("operation %q, phase %q, missing %q: %w", re.Op, re.Phase, re.Missing, err)
	case errors.Is(err, context.Canceled) != (c.Rank() == rank):
		return fmt.Errorf("the context ended on rank %d, and rank %d got %w", rank, c.Rank(), err)
	}
	return nil
}

// TestCancel ends the context of a blocking call that cannot complete. That breaks its communicator,
// and only that.
func TestCancel(t *testing.T) {
	const canceller, absent, size = 1, 3, 4
	ops := map[string]func(ctx context.Context, c *allcast.Comm, buf []byte) error{
		"broadcast": func(ctx context.Context, c *allcast.Comm, buf []byte) error { return c.Broadcast(ctx, buf, 0) },
		"allgather": func(ctx context.Context, c *allcast.Comm, buf []byte) error { return c.Allgather(ctx, nil, buf) },
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
			ranks(t, size, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				if c.Rank() == absent {
					return shrinkAndUse(ctx, world, c)
				}
				buf := make([]byte, 40_000)
				other, err := c.StartBarrier() // it is cancelled with the call after it
				if err != nil {
					return err
				}
				if c.Rank() == canceller {
					over, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
					defer cancel()
					err := op(over, c, buf)
					var re *allcast.RankError
					if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &re) || re.Rank != canceller {
						return fmt.Errorf("our context has ended: %w", err)
					}
					if later := op(ctx, c, buf); later != err {
						return fmt.Errorf("a later call got %w, want %w", later, err)
					}
					if later := op(over, c, buf); later != err {
						return fmt.Errorf("a later call with the same context got %w, want %w", later, err)
					}
					if _, later := c.StartBarrier(); later != err {
						return fmt.Errorf("a later start got %w, want %w", later, err)
					}
				} else if err := cancelled(op(ctx, c, buf), c, canceller); err != nil {
					return err
				}
				var re *allcast.RankError
				if err := other.Wait(ctx); !errors.Is(err, allcast.ErrAborted) || !errors.As(err, &re) || re.Rank != canceller {
					return fmt.Errorf("the operation before it: %w", err)
				}
				return shrinkAndUse(ctx, world, c)
			})
		})
	}
}

// shrinkAndUse goes on after a failure.
func shrinkAndUse(ctx context.Context, world, c *allcast.Comm) error {
	d, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	return errors.Join(gathers(ctx, d, 1, 5000, "mcast"), gathers(ctx, world, 2, 5000, "mcast"), d.Close(), c.Close())
}

// TestCancelledBefore: a context that has ended already starts nothing, and takes no place in the order
// of calls.
func TestCancelledBefore(t *testing.T) {
	ranks(t, 3, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		over, cancel := context.WithCancel(ctx)
		cancel()
		buf := make([]byte, 12)
		if c.Rank() == 1 {
			for i, err := range []error{
				c.Barrier(over), c.Broadcast(over, buf, 0), c.Allgather(over, nil, buf), c.Allgatherv(over, nil, buf, []int{4, 4, 4}),
				c.ReduceScatter(over, buf, buf[:4], allcast.Int32, allcast.Sum), c.Allreduce(over, nil, buf, allcast.Int32, allcast.Sum),
			} {
				if !errors.Is(err, context.Canceled) || errors.Is(err, allcast.ErrAborted) {
					return fmt.Errorf("method %d: %w", i, err)
				}
			}
		}
		return gathers(ctx, c, 1, 50_000, "mcast")
	})
}

// TestWaitIsNotCancel: the context of Request.Wait ends the waiting, and nothing else.
func TestWaitIsNotCancel(t *testing.T) {
	const size, late, n = 3, 2, 100_000
	var gaveUp sync.WaitGroup
	gaveUp.Add(size - 1)
	ranks(t, size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == late {
			gaveUp.Wait()
		}
		got := make([]byte, n*c.Size())
		r, err := c.StartAllgather(pattern(1, c.Rank(), n), got, allcast.WithAlgorithm("mcast"))
		if err != nil {
			return err
		}
		if c.Rank() != late {
			over, cancel := context.WithCancel(ctx)
			cancel()
			err := r.Wait(over)
			gaveUp.Done()
			if !errors.Is(err, context.Canceled) || errors.Is(err, allcast.ErrAborted) || r.Err() != nil {
				return fmt.Errorf("given up: %w, and %w", err, r.Err())
			}
		}
		return equal(ran(ctx, r, nil, "mcast"), got, gathered(1, c.Size(), n))
	})
}

// rounds lets ranks of one process go on until something is complete. All of them make the same rounds.
type rounds struct {
	least, most int
	complete    func() bool
	mu          sync.Mutex
	decided     []bool
}

// more reports whether there is an nth round.
func (r *rounds) more(nth int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if nth == len(r.decided) {
		r.decided = append(r.decided, nth < r.least || nth < r.most && !r.complete())
	}
	return r.decided[nth]
}

// cancelRounds is how often TestCancelEverywhere cancels on each datapath, at least.
func cancelRounds() int {
	if testenv.Race {
		return 1000
	}
	return 200 // the race detector sees more
}

// cancelShape is a call, and the phases in which its context ends.
type cancelShape struct {
	op, algo string
	phases   []string
}

// TestCancelEverywhere cancels calls in all their phases, under loss. The caller overwrites its buffers
// as soon as the call returns, and gives them back: a write that comes later is seen, or is the end of
// the process. A rank gets all the data, or learns who cancelled.
func TestCancelEverywhere(t *testing.T) {
	t.Setenv("ALLCAST_FAULT", "drop=10%,dup=2%,reorder=5%,seed=5")
	shapes := []cancelShape{
		{"broadcast", "mcast", []string{"barrier", "multicast", "fetch", "handshake", "lingering"}},
		{"allgather", "mcast", []string{"barrier", "activation", "multicast", "fetch", "handshake", "lingering"}},
		{"allgather", "ring", []string{"transfer", "put"}},
		{"allreduce", "ring", []string{"transfer", "put"}},
		{"reduce-scatter", "ring", []string{"transfer", "put"}},
	}
	datapaths(t, func(t *testing.T, o allcast.Options) {
		t.Helper()
		const size, n = 3, 40_000
		var cuts, wholes atomic.Int64
		opts := make([]allcast.Options, size)
		triggers := make([]*trigger, size)
		watches := map[int]watch{}
		for r := range opts {
			triggers[r] = &trigger{}
			opts[r], watches[r] = o, triggers[r].watch
		}
		fired := func() map[string]int {
			all := map[string]int{}
			for _, g := range triggers {
				g.mu.Lock()
				for phase, n := range g.fired {
					all[phase] += n
				}
				g.mu.Unlock()
			}
			return all
		}
		// Not every operation comes to every phase.
		all := &rounds{least: cancelRounds(), most: 20 * cancelRounds(), complete: func() bool {
			in := fired()
			return !slices.ContainsFunc(shapes, func(s cancelShape) bool {
				return slices.ContainsFunc(s.phases, func(phase string) bool { return in[phase] == 0 })
			})
		}}
		for r, err := range joinWatched(t, opts, watches, func(ctx context.Context, world *allcast.Comm) error {
			kept := &markers{}
			for round := 0; all.more(round); round++ {
				s := shapes[round%len(shapes)]
				x := round / len(shapes)
				victim, phase := x%size, s.phases[x/size%len(s.phases)]
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				over, cancel := context.WithCancel(ctx)
				if c.Rank() == victim {
					triggers[c.Rank()].armed.Store(&arming{phase, cancel})
				}
				whole, err := cancelledCall(over, c, kept, uint64(round), n, s.op, s.algo, victim)
				triggers[c.Rank()].armed.Store(nil)
				cancel()
				if err != nil {
					return fmt.Errorf("round %d, %s by %s, rank %d cancels at %s: %w", round, s.op, s.algo, victim, phase, err)
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
		t.Logf("%d calls failed and %d completed; contexts that ended, by phase: %v", cuts.Load(), wholes.Load(), fired())
		if !all.complete() {
			t.Error("no context ended in some phase")
		}
		if cuts.Load() == 0 || wholes.Load() == 0 {
			t.Errorf("%d calls failed and %d completed: want some of both", cuts.Load(), wholes.Load())
		}
	})
}

// cancelledCall makes a call that victim may cancel, and reports whether it has completed here.
func cancelledCall(ctx context.Context, c *allcast.Comm, kept *markers, seed uint64, n int, op, algo string, victim int) (whole bool, err error) {
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
		err = equal(nil, out, want)
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

// cancelBuffers returns what a rank gives to an operation, and what it gets if the operation completes.
func cancelBuffers(c *allcast.Comm, seed uint64, n int, op string, root int) (in, out, want []byte) {
	total := func(n int) []byte {
		sum := make([]float32, n)
		for r := range c.Size() {
			for k, x := range numbers(seed, r, n) {
				sum[k] += x
			}
		}
		return allcast.Bytes(sum)
	}
	switch op {
	case "broadcast":
		out, want = make([]byte, n), pattern(seed, root, n)
		if c.Rank() == root {
			copy(out, want)
		}
	case "allgather":
		in, out, want = pattern(seed, c.Rank(), n), make([]byte, n*c.Size()), gathered(seed, c.Size(), n)
	case "allreduce":
		in, out, want = allcast.Bytes(numbers(seed, c.Rank(), n/4)), make([]byte, n), total(n/4)
	case "reduce-scatter":
		in, out = allcast.Bytes(numbers(seed, c.Rank(), n/4*c.Size())), make([]byte, n)
		want = total(n / 4 * c.Size())[n*c.Rank():][:n]
	}
	return in, out, want
}

// markers are buffers that nobody may write to any more.
type markers struct{ bufs [][]byte }

const marker = 0xEE

func (m *markers) mark(b []byte) {
	for i := range b {
		b[i] = marker
	}
}

// keep remembers a buffer that was marked. Of many it looks at the oldest now.
func (m *markers) keep(b []byte) {
	const most = 64
	if m.bufs = append(m.bufs, b); len(m.bufs) > most && bytes.Count(m.bufs[0], []byte{marker}) == len(m.bufs[0]) {
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
