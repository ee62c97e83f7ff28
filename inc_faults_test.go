package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/joinhook"
	"github.com/allcast/allcast/internal/reduce"
)

// Lost, repeated and overtaking datagrams change no bit of a sum.
func TestIncFaults(t *testing.T) {
	const size = 5
	for _, spec := range []string{"drop=2%,seed=1", "drop=3%,dup=5%,reorder=20%,seed=2", "reorder=50%,seed=3"} {
		t.Run(spec, func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", spec)
			s := newSite(t, "0-1", "2-4")
			tree := s.tree(size)
			s.run(t, size, s.options(), func(ctx context.Context, c *allcast.Comm) error {
				for _, typ := range []reduce.Type{reduce.F32, reduce.BF16, reduce.F16} {
					if err := incCalls(ctx, c, tree, typ, reduce.Sum, 60_000); err != nil {
						return fmt.Errorf("%v: %w", typ, err)
					}
				}
				if c.Stats().IncSums == 0 {
					return errors.New("aggregators made no sum")
				}
				return nil
			})
		})
	}
}

// The sums of floats have the same bits in 100 calls, whatever is lost, repeated, delayed or fetched. An aggregator
// ends meanwhile.
func TestIncSameBits(t *testing.T) {
	const size, calls, n = 5, 100, 30_000
	t.Setenv("ALLCAST_FAULT", "drop=1%,dup=1%,reorder=20%,seed=9")
	s := newSite(t, "0-2", "3-4")
	want := reduced(s.tree(size), reduce.BF16, reduce.Sum, blocksOf(reduce.BF16, n, size))
	s.run(t, size, s.options(), func(ctx context.Context, c *allcast.Comm) error {
		for i := range calls {
			if i == calls*3/4 && c.Rank() == 0 {
				if err := s.servers[1].Close(); err != nil {
					return err
				}
			}
			buf := elements(reduce.BF16, c.Rank(), n)
			r, err := c.StartAllreduce(nil, buf, allcast.BFloat16, allcast.Sum, allcast.WithAlgorithm("inc"))
			if err := calltest.Equal(calltest.Wait(ctx, r, err, "inc"), buf, want); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		if st := c.Stats(); st.IncSums == 0 || st.IncFetchedBytes == 0 {
			return fmt.Errorf("%d sums of aggregators, %d bytes fetched: want some of both", st.IncSums, st.IncFetchedBytes)
		}
		return nil
	})
}

// If no datagram of aggregators arrives, ranks add the contributions themselves. Later calls do not wait for the
// aggregators again.
func TestIncSilence(t *testing.T) {
	const size = 4
	t.Setenv("ALLCAST_FAULT", "drop=100%")
	s := newSite(t, "0-3")
	tree := s.tree(size)
	allcasttest.Run(t, size, s.options(), func(ctx context.Context, c *allcast.Comm) error {
		// A call that ends before its patience does fetches the chunks that it misses, and says nothing.
		for {
			if err := incCalls(ctx, c, tree, reduce.BF16, reduce.Avg, 100_000); err != nil {
				return err
			}
			if done, err := agreeOn(ctx, c, c.Stats().IncFallbacks > 0); err != nil {
				return err
			} else if done {
				break
			}
		}
		st := c.Stats()
		if st.IncSums != 0 || st.IncFetchedBytes == 0 {
			return fmt.Errorf("%d sums, %d bytes fetched", st.IncSums, st.IncFetchedBytes)
		}
		return nil
	})
}

// a log collects log messages.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed by the next message; nil: nobody waits
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.text.Write(b)
}

// until waits for a line that contains all texts.
func (l *log) until(ctx context.Context, texts ...string) error {
	for {
		l.mu.Lock()
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		if l.count(texts...) > 0 {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// count returns the number of lines that contain all texts.
func (l *log) count(texts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
			n++
		}
	}
	return n
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// incSum is a Reduce-Scatter by aggregators of n numbers per block. It returns how the call fell back.
func incSum(ctx context.Context, c *allcast.Comm, seed uint64, n int) (fallback string, err error) {
	send, got := allcast.Bytes(calltest.Numbers(seed, c.Rank(), n*c.Size())), make([]byte, 4*n)
	want := allcast.Bytes(calltest.Sum(seed, c.Size(), n*c.Size())[n*c.Rank():][:n])
	r, err := c.StartReduceScatter(send, got, allcast.Float32, allcast.Sum, allcast.WithAlgorithm("inc"))
	if err := calltest.Equal(calltest.Wait(ctx, r, err, "inc"), got, want); err != nil {
		return "", fmt.Errorf("call %d: %w", seed, err)
	}
	return r.Info().Fallback, nil
}

// agreeOn lets all ranks take the same branch: whether a condition holds on all of them.
func agreeOn(ctx context.Context, c *allcast.Comm, ok bool) (bool, error) {
	all := []int32{0}
	if ok {
		all[0] = 1
	}
	err := allcast.AllreduceSlice(ctx, c, nil, all, allcast.Min, allcast.WithAlgorithm("ring"))
	return all[0] == 1, err
}

// An aggregator ends while calls run, and comes back. All sums are right. Calls go point to point in between, and use
// aggregators again. The log says both, in turn.
func TestIncAggregatorRestarts(t *testing.T) {
	const size, n = 4, 50_000
	for name, victim := range map[string]int{"top": 0, "leaf": 1} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "0-1", "2-3")
			var logged log
			o := s.options()
			o.Logger = logged.logger()
			ctx := joinhook.With(t.Context(), siteHooks)
			errs := allcasttest.JoinAll(ctx, slices.Repeat([]allcast.Options{o}, size),
				func(ctx context.Context, c *allcast.Comm) error {
					seed := uint64(0)
					// until runs calls until all have fallen back, or none.
					until := func(fallback bool) error {
						for {
							seed++
							why, err := incSum(ctx, c, seed, n)
							if err != nil {
								return err
							}
							if done, err := agreeOn(ctx, c, (why != "") == fallback); err != nil || done {
								return err
							}
						}
					}
					if err := until(false); err != nil {
						return err
					}
					closed := make(chan error, 1)
					if c.Rank() == 0 {
						go func() { closed <- s.servers[victim].Close() }()
					}
					if err := until(true); err != nil {
						return fmt.Errorf("without an aggregator: %w", err)
					}
					if c.Rank() == 0 {
						if err := errors.Join(<-closed, s.restart(victim)); err != nil {
							return err
						}
					}
					return until(false)
				})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			// A busy machine may delay sums for so long that calls fall back at other times too.
			warned, turns := false, 0
			for line := range strings.Lines(logged.text.String()) {
				warns := strings.Contains(line, "level=WARN") && strings.Contains(line, "aggregators cannot be used")
				if !warns && (!strings.Contains(line, "use aggregators again") || !strings.Contains(line, "rank=0")) {
					continue
				}
				for _, text := range []string{"reason=", "127.0.0.1:", "retry=50ms"} {
					if warns && !strings.Contains(line, text) {
						t.Errorf("a warning without %q: %s", text, line)
					}
				}
				if warns == warned {
					t.Errorf("said twice: %s", line)
				}
				warned = warns
				turns++
			}
			if warned || turns == 0 {
				t.Errorf("the log does not say that aggregators failed, or not that they are used again:\n%s", logged.text.String())
			}
		})
	}
}

// A rank that leaves early takes the aggregators from the others. That is no reason for a warning while nothing needs
// them.
func TestIncLeave(t *testing.T) {
	const size = 3
	s := newSite(t, "0-2")
	var logged log
	o := s.options()
	o.Logger = logged.logger()
	s.run(t, size, o, func(ctx context.Context, c *allcast.Comm) error {
		if c.Rank() == 2 {
			return c.CloseWithin(time.Millisecond)
		}
		return logged.until(ctx, "cannot be used at the moment", "rank 2 has detached", "rank="+strconv.Itoa(c.Rank()))
	})
	if n := logged.count("level=WARN", "aggregator"); n != 0 {
		t.Errorf("%d warnings:\n%s", n, logged.text.String())
	}
}

// Join succeeds although the aggregators cannot be used, and says why. Calls run point to point.
func TestIncUnusable(t *testing.T) {
	const size = 3
	s := newSite(t, "0-2")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	wrongKey := s.options()
	wrongKey.SiteKey = []byte("the key of another site")
	unreachable := s.options()
	unreachable.Aggregators = nobody + "=0-2"
	for name, tt := range map[string]struct {
		o      allcast.Options
		reason string
	}{
		"wrong key":   {wrongKey, "key"},
		"unreachable": {unreachable, nobody},
	} {
		t.Run(name, func(t *testing.T) {
			var logged log
			tt.o.Logger = logged.logger()
			allcasttest.Run(t, size, tt.o, func(ctx context.Context, c *allcast.Comm) error {
				if works, why := c.Aggregation(); works || !strings.Contains(why, tt.reason) {
					return fmt.Errorf("aggregation works: %v, %s", works, why)
				}
				why, err := incSum(ctx, c, 1, 1000)
				if err != nil {
					return err
				}
				if why == "" {
					return errors.New("the call did not fall back")
				}
				// Calls without sums and calls that fail do not show that aggregators work.
				if _, err := incSum(ctx, c, 2, 0); err != nil {
					return err
				}
				d, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				block := 4 * (1 + c.Rank()%2)
				err = d.ReduceScatter(ctx, make([]byte, size*block), make([]byte, block), allcast.Float32, allcast.Sum,
					allcast.WithAlgorithm("inc"))
				if err == nil {
					return errors.New("blocks of different sizes on two ranks are no error")
				}
				return d.Close()
			})
			if n := logged.count("use aggregators again"); n != 0 {
				t.Errorf("%d messages that aggregators are used, which do not work:\n%s", n, logged.text.String())
			}
			if n := logged.count("level=WARN", "aggregators cannot be used", tt.reason); n != 1 {
				t.Errorf("%d warnings, want one:\n%s", n, logged.text.String())
			}
		})
	}
}

// Calls that cannot use aggregators at all say why.
func TestIncRefused(t *testing.T) {
	s := newSite(t, "0-1")
	secure, integrity := s.options(), s.options()
	// The kernel can neither decrypt nor check sums.
	secure.Secure, secure.Key, secure.Datapath = true, []byte("the key of this job"), "host"
	integrity.Integrity, integrity.Datapath = true, "host"
	for want, o := range map[string]allcast.Options{
		"Options.Secure": secure, "Options.Integrity": integrity, "ALLCAST_AGGREGATORS": {},
	} {
		allcasttest.Run(t, 2, o, func(ctx context.Context, c *allcast.Comm) error {
			buf := make([]byte, 1000)
			err := c.Allreduce(ctx, nil, buf, allcast.Float32, allcast.Sum, allcast.WithAlgorithm("inc"))
			var refused *allcast.NoAggregationError
			if !errors.As(err, &refused) || !errors.Is(err, allcast.ErrNoAggregation) || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("got %w, want an error that names %s", err, want)
			}
			return c.Allreduce(ctx, nil, buf, allcast.Float32, allcast.Sum) // auto works
		})
	}
}

// Ranks with different trees do not join.
func TestIncTreesDiffer(t *testing.T) {
	s := newSite(t, "0-2")
	opts := slices.Repeat([]allcast.Options{s.options()}, 3)
	opts[2].Aggregators = ""
	errs := allcasttest.JoinAll(t.Context(), opts, func(context.Context, *allcast.Comm) error { return nil })
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 2 has other aggregators than rank 0") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Bad settings are errors that say what to do.
func TestIncOptions(t *testing.T) {
	for want, o := range map[string]allcast.Options{
		"ALLCAST_SITE_KEY_FILE": {Aggregators: "127.0.0.1:1=0"},
		"want at least 16":      {Aggregators: "127.0.0.1:1=0", SiteKey: []byte("short")},
		"ALLCAST_AGGREGATORS":   {Aggregators: "127.0.0.1:1=0-7", SiteKey: siteKey},
	} {
		errs := allcasttest.JoinAll(t.Context(), []allcast.Options{o},
			func(context.Context, *allcast.Comm) error { return nil })
		if !errors.Is(errs[0], allcast.ErrOptions) || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("got %v, want an error that contains %q", errs[0], want)
		}
	}
}

// A rank gives a reduction up in each of its phases. The others get an error that names it, or their sum. A new
// communicator of all ranks works.
func TestIncCancel(t *testing.T) {
	const size, n, canceller = 4, 200_000, 2
	for _, phase := range []string{"barrier", "transfer", "handshake"} {
		t.Run(phase, func(t *testing.T) {
			s := newSite(t, "0-1", "2-3")
			var g trigger
			hooks := siteHooks
			hooks.Watch = func(rank int, comm uint32, _ uint64, now string) {
				if rank == canceller && comm > 1 {
					g.watch(now)
				}
			}
			ctx := joinhook.With(t.Context(), hooks)
			errs := allcasttest.JoinAll(ctx, slices.Repeat([]allcast.Options{s.options()}, size),
				func(ctx context.Context, world *allcast.Comm) error {
					for i := range uint64(3) {
						c, err := world.Dup(ctx)
						if err != nil {
							return err
						}
						ended, cancel := context.WithCancel(ctx)
						if c.Rank() == canceller {
							g.armed.Store(&arming{phase, cancel})
						}
						send, got := allcast.Bytes(calltest.Numbers(i, c.Rank(), n*size)), make([]byte, 4*n)
						want := allcast.Bytes(calltest.Sum(i, size, n*size)[n*c.Rank():][:n])
						err = c.ReduceScatter(ended, send, got, allcast.Float32, allcast.Sum, allcast.WithAlgorithm("inc"))
						cancel()
						if err == nil {
							err = calltest.Equal(nil, got, want)
						} else {
							err = cancelled(err, c, canceller)
						}
						if err != nil {
							return err
						}
						d, err := c.Shrink(ctx)
						if err != nil {
							return err
						}
						if _, err := incSum(ctx, d, i, 10_000); err != nil {
							return err
						}
						if err := errors.Join(d.Close(), c.Close()); err != nil {
							return err
						}
					}
					return nil
				})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			if g.fired[phase] == 0 {
				t.Errorf("no call was cancelled in the %s phase", phase)
			}
		})
	}
}

// A rank dies during a reduction. The others get an error that names it, and continue without it and without
// aggregators.
func TestIncRankDies(t *testing.T) {
	const size, n, victim = 4, 200_000, 3
	s := newSite(t, "0-1", "2-3")
	allcasttest.Run(t, size, s.options(), func(ctx context.Context, world *allcast.Comm) error {
		var err error
		for seed := uint64(1); err == nil; seed++ {
			if _, err = incSum(ctx, world, seed, n); err == nil && world.Rank() == victim && seed == 2 {
				world.Vanish()
				return nil
			}
		}
		var re *allcast.RankError
		if !errors.As(err, &re) || re.WorldRank != victim {
			return fmt.Errorf("rank %d vanished: %w", victim, err)
		}
		c, err := world.Shrink(ctx)
		if err != nil {
			return err
		}
		if _, err := incSum(ctx, c, 1, 100); !errors.Is(err, allcast.ErrNoAggregation) {
			return fmt.Errorf("inc on %d of %d ranks: %w", c.Size(), size, err)
		}
		return calltest.Collectives["allreduce"](ctx, c, calltest.OnHeap, 5, 1000, "ring")
	})
}

// Tuning rules use aggregators where they work.
func TestIncTuning(t *testing.T) {
	s := newSite(t, "0-2")
	for algo, o := range map[string]allcast.Options{"inc": s.options(), "ring": {}} {
		o.Tuning = "reduce-scatter:inc,ring"
		s.run(t, 3, o, func(ctx context.Context, c *allcast.Comm) error {
			r, err := c.StartReduceScatter(make([]byte, 3000), make([]byte, 1000), allcast.Int8, allcast.Max)
			return calltest.Wait(ctx, r, err, algo)
		})
	}
}
