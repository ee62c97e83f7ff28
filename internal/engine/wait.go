package engine

import (
	"context"
	"runtime"
	"time"
)

// Who waits for a call serves the network meanwhile, if nobody else does: what it waits
// for then wakes nobody else first. It looks again and again for a moment before it
// sleeps, since to be woken takes longer than most answers. How long, it learns: twice
// as long when that was worth it, half as long when it was not.
const (
	spinLeast = 20 * time.Microsecond
	spinMost  = time.Millisecond
	// othersTurn is after how many looks in vain other goroutines have their turn.
	othersTurn = 8
)

// Wait waits until the call has ended or ctx has.
func (r *Request) Wait(ctx context.Context) {
	if p := r.e.poller; p != nil && !r.over.Load() && p.Lead() {
		r.e.served.Store(true)
		r.e.serve(ctx, r)
		r.e.served.Store(false)
		r.e.send.leave()
		p.Yield()
	}
	if r.over.Load() {
		return
	}
	select {
	case <-r.Done():
	case <-ctx.Done():
	}
}

// serve serves the network until the call or ctx has ended, or somebody else does better.
func (e *Engine) serve(ctx context.Context, r *Request) {
	p := e.poller
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, p.Kick)
		defer stop()
	}
	ended := func() bool { return r.over.Load() || ctx.Err() != nil }
	looks := 0
	for since := time.Now(); !ended(); {
		e.tick()
		polled := p.Poll(0)
		if e.send.serve() || polled {
			if now := time.Now(); now.Sub(since) > spinLeast {
				e.spin = min(2*e.spin, spinMost)
				since = now
			}
			continue
		}
		if looks++; e.alone && looks%othersTurn == 0 {
			// Others may have what we wait for, and nobody else runs them. With more processors
			// that would only wake a thread, to run us instead.
			runtime.Gosched()
		}
		if e.bulk.Load() {
			return // for long: Go's poller waits at a lower price, and wakes the background
		}
		if time.Since(since) < e.spin {
			relax()
			continue
		}
		e.spin = max(e.spin/2, spinLeast)
		e.asleep.Store(true)
		e.send.leave()
		if !ended() {
			p.Poll(e.untilTick())
		}
		e.asleep.Store(false)
		since = time.Now()
	}
}
