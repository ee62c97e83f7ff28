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

// jobVar is the variable with the parameters of a rank: MODE SEED GENERATION SUBGROUPS SIZE LIMIT.
const jobVar = "ALLCAST_CHAOS"

// rank is one process of the job.
type rank struct {
	script   script
	trees    int
	limit    time.Duration // time limit of a call
	world    *allcast.Comm
	main     *allcast.Comm   // communicator of the living ranks
	pool     []*allcast.Comm // communicators made from main
	stopping atomic.Bool     // whether the runner has asked the rank to stop
	call     uint64
	op       string
	commName string                   // communicator of the call
	names    map[*allcast.Comm]string // names of the communicators of the pool; the same on all their ranks
	baseline tally                    // resources before Join
	draw     *rand.Rand               // source of this rank's private decisions
	returned [][]byte                 // buffers whose calls have returned, filled with markers

	calls, bytes, comms           atomic.Uint64
	cancelled, inTimes, unstarted atomic.Uint64 // see tally
	callTick                      atomic.Int64  // watchdog tick at which the current call started; 0 if none is running
	ticks                         atomic.Int64
}

func rankMain() int {
	r := &rank{}
	if _, err := fmt.Sscan(os.Getenv(jobVar), (*string)(&r.script.mode), &r.script.seed, &r.script.generation,
		&r.trees, &r.script.maxBytes, &r.limit); err != nil {
		sendReport(report{Kind: kindUnexpected, Text: jobVar + ": " + err.Error()})
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		r.stopping.Store(true)
	}()
	if err := r.run(context.Background()); err != nil {
		r.report(kindUnexpected, nil, err)
		return 1
	}
	return 0
}

func (r *rank) report(what string, ranks []int, err error) {
	n := report{Kind: what, Epoch: r.script.epoch, Call: r.call, Op: r.op, Comm: r.commName, Ranks: ranks}
	if err != nil {
		n.Text = err.Error()
	}
	sendReport(n)
}

func (r *rank) run(ctx context.Context) (err error) {
	go r.watch(func() {
		var s strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&s, 1)
		sendReport(report{Kind: kindHang, Epoch: r.script.epoch, Call: r.call, Op: r.op, Text: s.String()})
		os.Exit(1)
	})
	r.baseline = tally{Goroutines: runtime.NumGoroutine(), Files: files()}
	r.startWatch("join")
	if r.world, err = allcast.Join(ctx, allcast.Options{Subgroups: r.trees, JoinTimeout: time.Minute}); err != nil {
		return err
	}
	r.stopWatch()
	r.main = r.world
	r.names = map[*allcast.Comm]string{}
	r.draw = rand.New(rand.NewPCG(r.script.seed^r.script.generation, uint64(r.world.Rank())))
	r.report(kindJoined, nil, nil)
	for {
		err := r.work(ctx)
		if err == nil {
			r.closePool()
			return r.leaveJob()
		}
		if err := r.handleFailure(err); err != nil {
			return err
		}
		if ok, err := r.shrink(ctx); !ok || err != nil {
			return err
		}
	}
}

// handleFailure reports how a call ended, and aborts the other communicators so that all ranks proceed
// to Shrink. It returns unexpected errors.
func (r *rank) handleFailure(err error) error {
	var failed *allcast.RankError
	known := errors.As(err, &failed)
	switch {
	case errors.Is(err, errContract):
		return err
	case r.script.mode == modeCancel && errors.Is(err, context.DeadlineExceeded):
		r.cancelled.Add(1)
		named := r.world.Rank() // a Split may fail before anything starts
		if known {
			named = failed.WorldRank
		}
		r.report(kindCancelled, []int{named}, err)
	case !known:
		return err
	case errors.Is(err, allcast.ErrRankLost):
		r.report(kindLost, []int{failed.WorldRank}, err)
	case errors.Is(err, allcast.ErrAborted):
		r.report(kindGivenUp, []int{failed.WorldRank}, err)
	default:
		return fmt.Errorf("neither a lost rank nor an abort: %w", err)
	}
	// Other ranks may wait for this one in communicators that have lost no rank.
	for _, c := range r.pool {
		_ = c.Abort() // fails if it is already broken
	}
	if r.script.mode == modeCancel {
		_ = r.main.Abort() // fails if it is already broken
	}
	return nil
}

// shrink continues with the living ranks. It returns false if this rank is excluded.
func (r *rank) shrink(ctx context.Context) (bool, error) {
	for try := 0; ; try++ {
		r.startWatch("shrink")
		next, err := r.main.Shrink(ctx)
		r.stopWatch()
		var failed *allcast.ShrinkError
		switch {
		case err == nil:
			// No rank uses the communicators made from main any more.
			r.closePool()
			if r.main != r.world {
				if err := r.main.Close(); err != nil {
					return false, err
				}
			}
			r.main = next
			r.script.epoch++
			r.call = 0
			r.report(kindEpoch, r.members(), nil)
			return true, r.checkMarkers()
		case !errors.As(err, &failed):
			return false, err
		case errors.Is(err, allcast.ErrRankLost):
			r.report(kindExcluded, failed.WorldRanks, err)
			return false, nil
		case try == 5:
			return false, fmt.Errorf("shrink failed %d times: %w", try+1, err)
		}
		r.report(kindMissing, failed.WorldRanks, err)
	}
}

func (r *rank) members() []int {
	list := make([]int, r.main.Size())
	for i := range list {
		list[i] = r.main.WorldRank(i)
	}
	return list
}

// leaveJob leaves the job and checks that nothing of it remains.
func (r *rank) leaveJob() error {
	if err := r.checkMarkers(); err != nil {
		return err
	}
	t := r.tally()
	r.startWatch("close")
	if r.main != r.world {
		if err := r.main.Close(); err != nil {
			return err
		}
	}
	if err := r.world.Close(); err != nil {
		return err
	}
	r.stopWatch()
	// Background work ends soon, but not at once.
	for range 500 {
		t.Goroutines, t.Files = runtime.NumGoroutine()-r.baseline.Goroutines, files()-r.baseline.Files
		if t.Goroutines <= 0 && t.Files <= ownFiles {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n := report{Kind: kindEnd, Epoch: r.script.epoch, Call: r.call, tally: t}
	if t.Goroutines > 0 {
		var b strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		n.Text = b.String()
	}
	sendReport(n)
	return nil
}

// ownFiles is the number of files that the Go runtime keeps once it has used the network: an epoll
// instance and the descriptor that wakes it.
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
		_ = c.Close() // fails if it is already broken
	}
	r.pool, r.names = nil, map[*allcast.Comm]string{}
}

// name returns the name that all ranks of a communicator use for it.
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

// startWatch tells the watchdog that a call starts, and stopWatch that it has returned.
func (r *rank) startWatch(op string) {
	r.op = op
	r.callTick.Store(r.ticks.Load() + 1)
}
func (r *rank) stopWatch() { r.callTick.Store(0) }

// tick is the watchdog's interval. The watchdog counts intervals, not time, because a process that was
// stopped has done nothing wrong.
const tick = 100 * time.Millisecond

// watch calls hung, once, if a call does not end within the limit.
func (r *rank) watch(hung func()) {
	for range time.Tick(tick) {
		n := r.ticks.Add(1)
		if b := r.callTick.Load(); b != 0 && time.Duration(n-b)*tick > r.limit {
			hung()
			return
		}
	}
}
