package ip

import (
	"sync/atomic"
	"testing"
	"time"
)

// A wake that comes between the background's last look and its rest is lost: wake sees
// blocked == false and does not ring, and background never looks at p.some again.
func TestReviewWakeOfBackgroundIsLost(t *testing.T) {
	p := newTestPoller(t)
	pipe := newPollPipe(t, p) // makes the background run
	var served atomic.Int64
	target := newPollPipe(t, p)
	ready := target.src.ready
	target.src.ready = func(s *pollSource) { served.Add(1); ready(s) }
	end := time.Now().Add(12 * time.Second)
	for i := int64(0); time.Now().Before(end); i++ {
		was := served.Load()
		pipe.send(t)
		for k := int64(0); k < i%4000; k++ { // slides over the window
			_ = p.closed.Load()
		}
		p.wake(target.src)
		for begin := time.Now(); served.Load() == was; {
			if time.Since(begin) > 2*time.Second {
				p.mu.Lock()
				defer p.mu.Unlock()
				t.Fatalf("try %d: woken 2 s ago and not served; some=%v blocked=%v woken=%d", i, p.some.Load(), p.blocked.Load(), len(p.woken))
			}
		}
	}
	t.Log("not seen in 12 s")
}

// The same between Yield's look at p.some and its blocked.Store(true).
func TestReviewWakeAtYieldIsLost(t *testing.T) {
	p := newTestPoller(t)
	var served atomic.Int64
	target := newPollPipe(t, p)
	ready := target.src.ready
	target.src.ready = func(s *pollSource) { served.Add(1); ready(s) }
	var turn, woke atomic.Int64
	defer turn.Store(-1)
	go func() {
		for i := int64(1); ; i++ {
			for turn.Load() != i {
				if turn.Load() < 0 {
					return
				}
			}
			for k := int64(0); k < i%60; k++ {
				_ = p.closed.Load()
			}
			p.wake(target.src)
			woke.Store(i)
		}
	}()
	end := time.Now().Add(12 * time.Second)
	for i := int64(1); time.Now().Before(end); i++ {
		for !p.Lead() {
		}
		was := served.Load()
		turn.Store(i)
		for k := int64(0); k < i/60%60; k++ {
			_ = p.closed.Load()
		}
		p.Yield()
		for woke.Load() != i {
		}
		for begin := time.Now(); served.Load() == was; time.Sleep(20 * time.Microsecond) {
			if time.Since(begin) > 2*time.Second {
				t.Fatalf("try %d: woken 2 s ago and not served; some=%v blocked=%v armed", i, p.some.Load(), p.blocked.Load())
			}
		}
	}
	t.Log("not seen in 12 s")
}
