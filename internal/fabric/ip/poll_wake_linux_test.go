package ip

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A wake that comes between the last poll of the background and its rest is served.
func TestPollWakeOfBackground(t *testing.T) {
	p := newTestPoller(t)
	pipe := newPollPipe(t, p) // makes the background run
	var served atomic.Int64
	target := newPollPipe(t, p)
	ready := target.src.ready
	target.src.ready = func(s *pollSource) { served.Add(1); ready(s) }
	for i := range int64(1500) {
		was := served.Load()
		pipe.send(t)
		for range i % 4000 { // slides over the window
			_ = p.closed.Load()
		}
		p.wake(target.src)
		for begin := time.Now(); served.Load() == was; runtime.Gosched() {
			if time.Since(begin) > tcpPatience {
				p.mu.Lock()
				defer p.mu.Unlock()
				t.Fatalf("try %d: woken and not served; some=%v blocked=%v woken=%d",
					i, p.sources.some.Load(), p.blocked.Load(), len(p.sources.woken))
			}
		}
	}
}

// A wake that comes while a goroutine yields is served.
func TestPollWakeAtYield(t *testing.T) {
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
				runtime.Gosched()
			}
			for range i % 60 {
				_ = p.closed.Load()
			}
			p.wake(target.src)
			woke.Store(i)
		}
	}()
	for i := int64(1); i < 300; i++ {
		for !p.Lead() {
			runtime.Gosched()
		}
		was := served.Load()
		turn.Store(i)
		for range i / 60 % 60 {
			_ = p.closed.Load()
		}
		p.Yield()
		for woke.Load() != i {
			runtime.Gosched()
		}
		for begin := time.Now(); served.Load() == was; time.Sleep(20 * time.Microsecond) {
			if time.Since(begin) > tcpPatience {
				t.Fatalf("try %d: woken and not served; some=%v blocked=%v", i, p.sources.some.Load(), p.blocked.Load())
			}
		}
	}
}
