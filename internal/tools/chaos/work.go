//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/allcast/allcast"
)

// reportEvery is the number of calls between two progress reports.
const reportEvery = 16

// maxPool limits the communicators beside the main one.
const maxPool = 3

// work follows the script until all ranks have been asked to stop.
func (r *rank) work(ctx context.Context) error {
	for ; ; r.call++ {
		if r.leaveWithin.Load() != nil {
			return errLeaving
		}
		if r.call%reportEvery == reportEvery-1 {
			r.report(report{Kind: kindProgress, tally: r.tally()})
			if stop, err := r.allStopping(ctx); err != nil {
				return err
			} else if stop {
				return r.land(ctx, math.MaxUint64)
			}
			continue
		}
		if err := r.land(ctx, r.call); err != nil {
			return err
		}
		r.closeEarly()
		st := r.script.at(r.call)
		r.startWatch(st.String())
		if err := r.step(ctx, st); err != nil && !r.continuesAfter(err) {
			return err
		}
		r.watchdog.callReturns()
	}
}

// allStopping reports whether all ranks have been asked to stop.
func (r *rank) allStopping(ctx context.Context) (bool, error) {
	flag := []byte{0}
	if r.stopping.Load() {
		flag[0] = 1
	}
	r.startWatch("vote to stop")
	defer r.watchdog.callReturns()
	r.commName = r.main.name
	if err := r.main.Allreduce(ctx, nil, flag, allcast.Uint8, allcast.Min); err != nil {
		return false, err
	}
	return flag[0] == 1, nil
}

func (r *rank) step(ctx context.Context, st step) error {
	switch st.do {
	case "split":
		return r.split(ctx, st)
	case "close":
		if len(r.pool) == 0 {
			return nil
		}
		c := r.pool[0]
		r.pool = r.pool[1:]
		return c.Close()
	case "burst":
		return r.burst(ctx, st)
	case "subset":
		return r.subset(ctx, st)
	}
	c := r.commOf(st)
	if c.Comm == nil {
		return nil // this rank is not a member
	}
	r.commName = c.name
	switch st.do {
	case "ring":
		return r.ring(ctx, c, st)
	case "any-source":
		return r.anySource(ctx, c, st)
	case "truncated":
		return r.truncated(ctx, c, st)
	case "group":
		return r.group(ctx, c, st)
	}
	f, err := r.prepare(c, st, 0)
	if err != nil {
		return err
	}
	if err = r.callWithDeadline(ctx, c, f); err == nil {
		err = r.verify(f, st.size)
	}
	return errors.Join(err, r.finish(f))
}

func (r *rank) split(ctx context.Context, st step) error {
	if len(r.pool) == maxPool {
		return nil
	}
	ctx, cancel := r.randomDeadline(ctx, rareDeadlines)
	defer cancel()
	r.commName = r.main.name
	color := r.main.Rank() % st.colors
	c, err := r.main.Split(ctx, color, int(st.root%2)*-r.main.Rank())
	if err != nil {
		return err
	}
	r.pool = append(r.pool, comm{c, fmt.Sprintf("%scolor %d", madeBy(r.call), color)})
	r.count.Comms++
	return nil
}

// burst makes several calls concurrently.
func (r *rank) burst(ctx context.Context, st step) error {
	var calls []*testCall
	var pending []*allcast.Request
	var names []string // communicators of the calls
	var first error
	fail := func(i int, err error) {
		if first == nil {
			first, r.commName = err, names[i]
		}
	}
	for i := range st.n {
		c := r.commOf(st.part(i))
		if c.Comm == nil {
			continue // this rank is not a member
		}
		f, err := r.prepare(c, st.part(i), uint64(i))
		if err != nil {
			return err
		}
		calls, names = append(calls, f), append(names, c.name)
		req, err := f.start()
		if err != nil {
			fail(len(names)-1, err) // the other calls are on communicators that may be intact
		}
		pending = append(pending, req)
	}
	// Wait for all of them, also after a failure: the calls own their buffers until then.
	for i, req := range pending {
		if req == nil {
			continue
		}
		if err := req.Wait(ctx); err != nil {
			fail(i, err)
		} else if err := r.verify(calls[i], st.size/st.n); err != nil {
			return err
		}
	}
	for _, f := range calls {
		if err := r.finish(f); err != nil {
			return err
		}
	}
	return first
}

// verify checks the data that a call has received.
func (r *rank) verify(f *testCall, size int) error {
	if err := f.verify(); err != nil {
		r.report(report{Kind: kindWrong, Text: err.Error()})
		return err
	}
	r.count.Calls++
	r.count.Bytes += uint64(size)
	return nil
}

// commOf returns the communicator of a step.
func (r *rank) commOf(st step) comm {
	if i := st.on % (len(r.pool) + 1); i > 0 {
		return r.pool[i-1]
	}
	return r.main
}

// Rarity of contexts that end, in calls per rank of the world. Most calls end the epoch with their context.
const (
	rareDeadlines  = 8
	oftenDeadlines = 2
)

// randomDeadline sometimes returns a context that ends soon, in the modes cancel and leave. Every rank draws
// for itself.
func (r *rank) randomDeadline(ctx context.Context, rarity int) (context.Context, context.CancelFunc) {
	if r.script.mode == modeLeave {
		rarity *= rareCancels
	}
	if !r.script.mode.cancels() || r.stopping.Load() || r.draw.IntN(rarity*r.world.Size()) > 0 {
		return ctx, func() {}
	}
	// The probability is equal on every scale from a microsecond to 20 ms.
	d := time.Duration(float64(time.Microsecond) * math.Exp(r.draw.Float64()*math.Log(20_000)))
	if r.draw.IntN(4) == 0 {
		d = 0 // the context has already ended
	}
	return context.WithTimeout(ctx, d)
}

// callWithDeadline makes a call whose context may end, and checks what the library guarantees if it does.
func (r *rank) callWithDeadline(ctx context.Context, c comm, f *testCall) error {
	rarity := rareDeadlines
	if f.message {
		rarity = oftenDeadlines
	}
	limited, cancel := r.randomDeadline(ctx, rarity)
	defer cancel()
	err := f.call(limited)
	var failed *allcast.RankError
	switch {
	case limited == ctx:
		return err
	case err == nil:
		r.count.InTime++
		return nil
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &failed):
		// The context ended before the call, which took no number in the order of calls, or before a Send
		// or a Recv had a match.
		if strings.Contains(err.Error(), "withdrawn") {
			r.count.Withdrawn++
		} else {
			r.count.Unstarted++
		}
		return f.call(ctx)
	case !errors.Is(err, context.DeadlineExceeded):
		return err // another rank failed before this context ended
	case !errors.Is(err, allcast.ErrAborted) || failed.Op == "" || failed.Phase == "" || failed.Missing == "":
		return fmt.Errorf("%w: a call was cancelled, operation %q, phase %q, missing %q: %w",
			errContract, failed.Op, failed.Phase, failed.Missing, err)
	}
	if later := c.Barrier(ctx); !errors.Is(later, err) {
		return fmt.Errorf("%w: a later call got %w, want %w", errContract, later, err)
	}
	return err
}

// errContract marks behaviour that contradicts the documentation of the library.
var errContract = errors.New("the library broke its contract")
