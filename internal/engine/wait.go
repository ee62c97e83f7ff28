package engine

import (
	"context"
	"runtime"
	"time"
)

// Who waits for a call serves the network meanwhile, if nobody else does: what it waits
// for then wakes nobody else first. It looks again and again for a moment before it
// sleeps, since to be woken takes longer than most answers.
const spin = 50 * time.Microsecond

// Wait waits until the call has ended or ctx has.
func (r *Request) Wait(ctx context.Context) {
	if p := r.e.cfg.Poller; p != nil && !r.ended() && p.Lead() {
		r.e.serve(ctx, r)
		p.Yield()
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

// serve serves the network until the call or ctx has ended.
func (e *Engine) serve(ctx context.Context, r *Request) {
	p := e.cfg.Poller
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, p.Kick)
		defer stop()
	}
	for until := time.Now().Add(spin); !r.ended() && ctx.Err() == nil; {
		if p.Poll(0) {
			until = time.Now().Add(spin)
			continue
		}
		// Others on this processor may have what we wait for.
		runtime.Gosched()
		if time.Now().Before(until) {
			relax()
			continue
		}
		e.asleep.Store(true)
		if !r.ended() && ctx.Err() == nil {
			p.Poll(-1)
		}
		e.asleep.Store(false)
		until = time.Now().Add(spin)
	}
}

// ended reports whether the call has.
func (r *Request) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}
