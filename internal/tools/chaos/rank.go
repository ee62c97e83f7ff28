//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
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
	world    *allcast.Comm
	main     comm        // communicator of the living ranks
	pool     []comm      // communicators made from main, in the same order on all ranks
	flights  []flight    // messages under way
	stopping atomic.Bool // whether the runner has asked the rank to stop

	leaveWithin atomic.Pointer[time.Duration] // limit of CloseWithin, once the runner has told the rank to leave

	draw     *rand.Rand // source of this rank's private decisions
	returned [][]byte   // buffers whose calls have returned, filled with markers

	// The current call.
	call     uint64
	op       string
	commName string
	watchdog watchdog

	count    tally // counters so far
	baseline usage // resources before Join
}

// comm is a communicator with a name that is the same on all its ranks. It is nil if this rank is not a member.
type comm struct {
	*allcast.Comm
	name string
}

func rankMain() int {
	r := &rank{}
	if _, err := fmt.Sscan(os.Getenv(jobVar), (*string)(&r.script.mode), &r.script.seed, &r.script.generation,
		&r.trees, &r.script.maxBytes, &r.watchdog.limit); err != nil {
		r.report(report{Kind: kindUnexpected, Text: jobVar + ": " + err.Error()})
		return 1
	}
	go r.obey(os.Stdin)
	if err := r.run(context.Background()); err != nil {
		r.report(report{Kind: kindUnexpected, Text: err.Error()})
		return 1
	}
	return 0
}

// report completes a report with the current call, and sends it to the runner.
func (r *rank) report(n report) {
	n.Epoch, n.Call, n.Op, n.Comm = r.script.epoch, r.call, r.op, r.commName
	sendReport(n)
}

func (r *rank) run(ctx context.Context) (err error) {
	go r.watchdog.watch(func() {
		r.report(report{Kind: kindHang, Text: goroutines()})
		os.Exit(1)
	})
	r.baseline = resources()
	r.startWatch("join")
	if r.world, err = allcast.Join(ctx, allcast.Options{Subgroups: r.trees, JoinTimeout: time.Minute}); err != nil {
		return err
	}
	r.watchdog.callReturns()
	r.main = comm{r.world, "main"}
	r.draw = rand.New(rand.NewPCG(r.script.seed^r.script.generation, uint64(r.world.Rank())))
	r.report(report{Kind: kindJoined})
	for {
		err := r.work(ctx)
		if err == nil {
			r.closePool()
			return r.leaveJob(func() error { return errors.Join(r.closeMain(), r.world.Close()) })
		}
		if !errors.Is(err, errLeaving) {
			if err := r.handleFailure(err); err != nil {
				return err
			}
		}
		if limit := r.leaveWithin.Load(); limit != nil {
			return r.leaveJob(func() error { return r.world.CloseWithin(*limit) }) // also with messages under way
		}
		if ok, err := r.shrink(ctx); !ok || err != nil {
			return err
		}
	}
}

// startWatch tells the watchdog that a call starts.
func (r *rank) startWatch(op string) {
	r.op = op
	r.watchdog.callStarts()
}

// handleFailure reports how a call ended, and aborts the other communicators so that all ranks proceed
// to Shrink. It returns unexpected errors.
func (r *rank) handleFailure(err error) error {
	var failed *allcast.RankError
	known := errors.As(err, &failed)
	switch {
	case errors.Is(err, errContract):
		return err
	case r.script.mode.cancels() && errors.Is(err, context.DeadlineExceeded):
		r.count.Cancelled++
		named := r.world.Rank() // a Split may fail before anything starts
		if known {
			named = failed.WorldRank
		}
		r.report(report{Kind: kindCancelled, Ranks: []int{named}, Text: err.Error()})
	case !known:
		return err
	case errors.Is(err, allcast.ErrRankLost), r.script.mode == modeLeave && errors.Is(err, allcast.ErrClosed):
		r.report(report{Kind: kindLost, Ranks: []int{failed.WorldRank}, Text: err.Error()})
	case errors.Is(err, allcast.ErrAborted):
		r.report(report{Kind: kindGivenUp, Ranks: []int{failed.WorldRank}, Text: err.Error()})
	default:
		return fmt.Errorf("neither a lost rank nor an abort: %w", err)
	}
	// Other ranks may wait for this one in communicators that have lost no rank.
	for _, c := range r.pool {
		_ = c.Abort() // fails if it is already broken
	}
	if r.script.mode.cancels() {
		_ = r.main.Abort() // fails if it is already broken
	}
	return nil
}

// shrink continues with the living ranks. It returns false if this rank is excluded.
func (r *rank) shrink(ctx context.Context) (bool, error) {
	for try := 0; ; try++ {
		r.startWatch("shrink")
		next, err := r.main.Shrink(ctx)
		r.watchdog.callReturns()
		var failed *allcast.ShrinkError
		switch {
		case err == nil:
			// No rank uses main and the communicators made from it any more.
			_ = r.main.Abort() // ends the flights; it fails if main is already broken
			if err := r.abandon(ctx); err != nil {
				return false, err
			}
			r.closePool()
			if err := r.closeMain(); err != nil {
				return false, err
			}
			r.main.Comm = next
			r.script.epoch++
			r.call = 0
			r.report(report{Kind: kindEpoch, Ranks: r.members()})
			return true, r.checkMarkers()
		case !errors.As(err, &failed):
			return false, err
		case errors.Is(err, allcast.ErrRankLost):
			r.report(report{Kind: kindExcluded, Ranks: failed.WorldRanks, Text: err.Error()})
			return false, nil
		case try == 5:
			return false, fmt.Errorf("shrink failed %d times: %w", try+1, err)
		}
		r.report(report{Kind: kindMissing, Ranks: failed.WorldRanks, Text: err.Error()})
	}
}

func (r *rank) members() []int {
	list := make([]int, r.main.Size())
	for i := range list {
		list[i] = r.main.WorldRank(i)
	}
	return list
}

// leaveJob leaves the job by closing the world, and checks that nothing of it remains.
func (r *rank) leaveJob(closeWorld func() error) error {
	if err := r.checkMarkers(); err != nil {
		return err
	}
	t := r.tally()
	r.startWatch("close")
	if err := closeWorld(); err != nil {
		return err
	}
	r.watchdog.callReturns()
	// Background work ends soon, but not at once.
	for range 500 {
		now := resources()
		t.Goroutines, t.Files = now.Goroutines-r.baseline.Goroutines, now.Files-r.baseline.Files
		if t.Goroutines <= 0 && t.Files <= ownFiles {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	n := report{Kind: kindEnd, tally: t}
	if t.Goroutines > 0 {
		n.Text = goroutines()
	}
	r.report(n)
	return nil
}

// closeMain closes the main communicator, unless it is the world.
func (r *rank) closeMain() error {
	if r.main.Comm == r.world {
		return nil
	}
	return r.main.Close()
}

// ownFiles is the number of files that the Go runtime keeps once it has used the network: an epoll
// instance and the descriptor that wakes it.
const ownFiles = 2

// resources returns the resources of this process.
func resources() usage {
	files, _ := os.ReadDir("/proc/self/fd") // an unreadable directory counts as empty
	return usage{Goroutines: runtime.NumGoroutine(), Files: len(files)}
}

// goroutines returns the stacks of all goroutines.
func goroutines() string {
	var s strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&s, 1)
	return s.String()
}

func (r *rank) closePool() {
	for _, c := range r.pool {
		_ = c.Close() // fails if it is already broken
	}
	r.pool = nil
}

// tally returns the counters and the resources of this rank.
func (r *rank) tally() tally {
	t := r.count
	st := r.world.Stats()
	t.Repaired, t.Sums, t.usage = st.RepairedChunks, st.IncSums, resources()
	return t
}
