//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/allcast/allcast"
)

// report is how often ranks say how far they are, and look whether it is over: in calls.
const report = 16

// most communicators beside the main one.
const poolMost = 3

// work follows the script until it is over on all ranks.
func (r *rank) work(ctx context.Context) error {
	for ; ; r.call++ {
		if r.call%report == report-1 {
			say(note{What: sayTick, Epoch: r.script.epoch, Call: r.call, tally: r.tally()})
			if over, err := r.isOver(ctx); err != nil || over {
				return err
			}
			continue
		}
		st := r.script.at(r.call)
		r.enter(st.String())
		if err := r.step(ctx, st); err != nil {
			return err
		}
		r.leave()
	}
}

// isOver says whether all ranks were told to end.
func (r *rank) isOver(ctx context.Context) (bool, error) {
	flag := []byte{0}
	if r.over.Load() {
		flag[0] = 1
	}
	r.enter("over?")
	defer r.leave()
	r.where = r.name(r.main)
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
	}
	f, err := r.flight(st, 0)
	if err != nil {
		return err
	}
	r.where = r.name(r.on(st))
	if err = r.inTime(ctx, r.on(st), f); err == nil {
		err = r.verify(f, st.size)
	}
	return errors.Join(err, r.finish(f))
}

func (r *rank) split(ctx context.Context, st step) error {
	if len(r.pool) == poolMost {
		return nil
	}
	ctx, cancel := r.whim(ctx)
	defer cancel()
	r.where = r.name(r.main)
	color := r.main.Rank() % st.colors
	c, err := r.main.Split(ctx, color, int(st.root%2)*-r.main.Rank())
	if err != nil {
		return err
	}
	r.pool = append(r.pool, c)
	r.names[c] = fmt.Sprintf("%scolor %d", madeBy(r.call), color)
	r.comms.Add(1)
	return nil
}

// burst has several calls under way.
func (r *rank) burst(ctx context.Context, st step) error {
	var flights []*flight
	var pending []*allcast.Request
	var first error
	for i := range st.n {
		f, err := r.flight(st.part(i), uint64(i))
		if err != nil {
			return err
		}
		flights = append(flights, f)
		req, err := f.start()
		if err != nil {
			first, r.where = err, r.name(r.on(st.part(i)))
			break
		}
		pending = append(pending, req)
	}
	// All of them, also after a failure: their buffers are theirs until then.
	for i, req := range pending {
		if err := req.Wait(ctx); err != nil {
			if first == nil {
				first, r.where = err, r.name(r.on(st.part(i)))
			}
		} else if err := r.verify(flights[i], st.size/st.n); err != nil {
			return err
		}
	}
	for _, f := range flights {
		if err := r.finish(f); err != nil {
			return err
		}
	}
	return first
}

// verify looks at what a call has received.
func (r *rank) verify(f *flight, size int) error {
	if err := f.verify(); err != nil {
		r.say(sayWrong, nil, err)
		return err
	}
	r.calls.Add(1)
	r.bytes.Add(uint64(size))
	return nil
}

// on is the communicator of a step.
func (r *rank) on(st step) *allcast.Comm {
	if i := st.on % (len(r.pool) + 1); i > 0 {
		return r.pool[i-1]
	}
	return r.main
}

// whim returns a context that ends soon, at times, in mode cancel. Every rank draws for itself.
func (r *rank) whim(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.script.mode != modeCancel || r.over.Load() || r.draw.IntN(8*r.world.Size()) > 0 {
		return ctx, func() {}
	}
	// As likely on every scale from a microsecond to 20 ms.
	d := time.Duration(float64(time.Microsecond) * math.Exp(r.draw.Float64()*math.Log(20_000)))
	if r.draw.IntN(4) == 0 {
		d = 0 // it has ended already
	}
	return context.WithTimeout(ctx, d)
}

// inTime makes a call whose context may end, and checks what is promised if it does.
func (r *rank) inTime(ctx context.Context, c *allcast.Comm, f *flight) error {
	whim, cancel := r.whim(ctx)
	defer cancel()
	err := f.call(whim)
	var failed *allcast.RankError
	switch {
	case whim == ctx:
		return err
	case err == nil:
		r.inTimes.Add(1)
		return nil
	case errors.Is(err, context.DeadlineExceeded) && !errors.As(err, &failed):
		// It had ended before the call, which has not taken its place in the order of calls.
		r.unstarted.Add(1)
		return f.call(ctx)
	case !errors.Is(err, context.DeadlineExceeded):
		return err // another rank's fault, before our context ended
	case !errors.Is(err, allcast.ErrAborted) || failed.Op == "" || failed.Phase == "" || failed.Missing == "":
		return fmt.Errorf("%w: a call was cancelled, operation %q, phase %q, missing %q: %w", errPromise, failed.Op, failed.Phase, failed.Missing, err)
	}
	if later := c.Barrier(ctx); !errors.Is(later, err) {
		return fmt.Errorf("%w: a later call got %w, want %w", errPromise, later, err)
	}
	return err
}

// errPromise is that the library did not do what its documentation says.
var errPromise = errors.New("a promise is broken")
