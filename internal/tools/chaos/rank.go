//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/allcast/allcast"
)

// jobVar tells ranks what to do: MODE SEED GENERATION SUBGROUPS SIZE LIMIT.
const jobVar = "ALLCAST_CHAOS"

// rank is one process of the job.
type rank struct {
	script script
	trees  int
	limit  time.Duration // of a call
	world  *allcast.Comm
	main   *allcast.Comm   // of the ranks that live
	pool   []*allcast.Comm // made of main
	over   atomic.Bool     // the runner has had enough
	call   uint64
	op     string
	where  string                   // the communicator of the call
	names  map[*allcast.Comm]string // of communicators of the pool; the same on all their ranks
	had    tally                    // before we joined
	draw   *rand.Rand               // what only this rank decides
	marked [][]byte                 // buffers whose calls have returned

	calls, bytes, comms           atomic.Uint64
	cancelled, inTimes, unstarted atomic.Uint64 // see tally
	began                         atomic.Int64  // ticks of the watchdog since when a call runs; 0: none does
	ticks                         atomic.Int64
}

func rankMain() int {
	r := &rank{}
	if _, err := fmt.Sscan(os.Getenv(jobVar), (*string)(&r.script.mode), &r.script.seed, &r.script.generation, &r.trees, &r.script.most, &r.limit); err != nil {
		say(note{What: sayOdd, Text: jobVar + ": " + err.Error()})
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		r.over.Store(true)
	}()
	if err := r.run(context.Background()); err != nil {
		r.say(sayOdd, nil, err)
		return 1
	}
	return 0
}

func (r *rank) say(what string, ranks []int, err error) {
	n := note{What: what, Epoch: r.script.epoch, Call: r.call, Op: r.op, Comm: r.where, Ranks: ranks}
	if err != nil {
		n.Text = err.Error()
	}
	say(n)
}

func (r *rank) run(ctx context.Context) (err error) {
	go r.watch(func() {
		var s strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&s, 1)
		say(note{What: sayHang, Epoch: r.script.epoch, Call: r.call, Op: r.op, Text: s.String()})
		os.Exit(1)
	})
	r.had = tally{Goroutines: runtime.NumGoroutine(), Files: files()}
	r.enter("join")
	if r.world, err = allcast.Join(ctx, allcast.Options{Subgroups: r.trees, JoinTimeout: time.Minute}); err != nil {
		return err
	}
	r.leave()
	r.main = r.world
	r.names = map[*allcast.Comm]string{}
	r.draw = rand.New(rand.NewPCG(r.script.seed^r.script.generation, uint64(r.world.Rank())))
	r.say(sayJoined, nil, nil)
	for {
		err := r.work(ctx)
		if err == nil {
			r.closePool()
			return r.end()
		}
		if err := r.failed(err); err != nil {
			return err
		}
		if ok, err := r.shrink(ctx); !ok || err != nil {
			return err
		}
	}
}

// failed tells the runner how a call ended, and the other ranks that we go on to Shrink. It returns an
// error that should not be.
func (r *rank) failed(err error) error {
	var failed *allcast.RankError
	known := errors.As(err, &failed)
	switch {
	case errors.Is(err, errPromise):
		return err
	case r.script.mode == modeCancel && errors.Is(err, context.DeadlineExceeded):
		r.cancelled.Add(1)
		named := r.world.Rank() // in a Split nothing may have begun
		if known {
			named = failed.WorldRank
		}
		r.say(sayCancelled, []int{named}, err)
	case !known:
		return err
	case errors.Is(err, allcast.ErrRankLost):
		r.say(sayLost, []int{failed.WorldRank}, err)
	case errors.Is(err, allcast.ErrAborted):
		r.say(sayGivenUp, []int{failed.WorldRank}, err)
	default:
		return fmt.Errorf("another error than a lost rank or an abort: %w", err)
	}
	// Others may wait for us in communicators that have lost nobody.
	for _, c := range r.pool {
		_ = c.Abort() // it may be broken
	}
	if r.script.mode == modeCancel {
		_ = r.main.Abort() // likewise
	}
	return nil
}

// shrink goes on with the ranks that live; false: we are out.
func (r *rank) shrink(ctx context.Context) (bool, error) {
	for try := 0; ; try++ {
		r.enter("shrink")
		next, err := r.main.Shrink(ctx)
		r.leave()
		var failed *allcast.ShrinkError
		switch {
		case err == nil:
			// Only now: nobody uses what was made of main any more.
			r.closePool()
			if r.main != r.world {
				if err := r.main.Close(); err != nil {
					return false, err
				}
			}
			r.main = next
			r.script.epoch++
			r.call = 0
			r.say(sayEpoch, r.members(), nil)
			return true, r.marks()
		case !errors.As(err, &failed):
			return false, err
		case errors.Is(err, allcast.ErrRankLost):
			r.say(sayExcluded, failed.WorldRanks, err)
			return false, nil
		case try == 5:
			return false, fmt.Errorf("too many times: %w", err)
		}
		r.say(sayMissing, failed.WorldRanks, err)
	}
}

func (r *rank) members() []int {
	list := make([]int, r.main.Size())
	for i := range list {
		list[i] = r.main.WorldRank(i)
	}
	return list
}

// end leaves the job, with nothing left of it.
func (r *rank) end() error {
	if err := r.marks(); err != nil {
		return err
	}
	t := r.tally()
	r.enter("close")
	if r.main != r.world {
		if err := r.main.Close(); err != nil {
			return err
		}
	}
	if err := r.world.Close(); err != nil {
		return err
	}
	r.leave()
	// What ends in the background ends soon, but not at once.
	for range 500 {
		if t.Goroutines, t.Files = runtime.NumGoroutine()-r.had.Goroutines, files()-r.had.Files; t.Goroutines <= 0 && t.Files <= ownFiles {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n := note{What: sayEnd, Epoch: r.script.epoch, Call: r.call, tally: t}
	if t.Goroutines > 0 {
		var b strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		n.Text = b.String()
	}
	say(n)
	return nil
}

// ownFiles is what Go's runtime keeps once it has used the network: an epoll and what
// wakes it.
const ownFiles = 2

func files() int {
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(d)
}

func (r *rank) closePool() {
	for _, c := range r.pool {
		_ = c.Close() // it may be broken
	}
	r.pool, r.names = nil, map[*allcast.Comm]string{}
}

// name is what all ranks of a communicator call it.
func (r *rank) name(c *allcast.Comm) string {
	if c == r.main {
		return "main"
	}
	return r.names[c]
}

func (r *rank) tally() tally {
	s := r.world.Stats()
	return tally{
		Calls: r.calls.Load(), Bytes: r.bytes.Load(), Comms: r.comms.Load(), Repaired: s.RepairedChunks,
		Cancelled: r.cancelled.Load(), InTime: r.inTimes.Load(), Unstarted: r.unstarted.Load(),
		Goroutines: runtime.NumGoroutine(), Files: files(),
	}
}

// enter and leave mark a call for the watchdog.
func (r *rank) enter(op string) {
	r.op = op
	r.began.Store(r.ticks.Load() + 1)
}
func (r *rank) leave() { r.began.Store(0) }

// tick is the watchdog's interval. The watchdog counts intervals, not time, because a process that was
// stopped has done nothing wrong.
const tick = 100 * time.Millisecond

// watch calls hung, once, if a call does not end within the limit.
func (r *rank) watch(hung func()) {
	for range time.Tick(tick) {
		n := r.ticks.Add(1)
		if b := r.began.Load(); b != 0 && time.Duration(n-b)*tick > r.limit {
			hung()
			return
		}
	}
}
