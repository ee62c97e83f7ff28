package ip

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pollPipe is a socket that a poller serves, and its other end.
type pollPipe struct {
	src   *pollSource
	write int
	got   atomic.Int64
}

func newPollPipe(t *testing.T, p *Poller) *pollPipe {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &pollPipe{write: fds[1]}
	s := &rawSocket{fd: fds[0]}
	c.src, err = p.add(fds[0], func(*pollSource) {
		var b [16]byte
		for s.dry = false; ; {
			n, err := s.Read(b[:])
			if err != nil {
				if !errors.Is(err, errAgain) {
					t.Error(err)
				}
				return
			}
			c.got.Add(int64(n))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.free()
		_ = unix.Close(c.write)
	})
	return c
}

func (c *pollPipe) send(t *testing.T) {
	t.Helper()
	if _, err := unix.Write(c.write, []byte{1}); err != nil {
		t.Error(err)
	}
}

func newTestPoller(t *testing.T) *Poller {
	t.Helper()
	p, err := NewPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// until waits for something that another goroutine does.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// Nothing is lost, whoever serves: the background, one who leads, or both in turn.
func TestPollHandOver(t *testing.T) {
	p := newTestPoller(t)
	pipes := []*pollPipe{newPollPipe(t, p), newPollPipe(t, p), newPollPipe(t, p)}
	const each = 3000
	var wg sync.WaitGroup
	for _, c := range pipes {
		wg.Go(func() {
			for i := range each {
				c.send(t)
				if i%100 == 0 { // until it is served, so that everybody has to wait at times
					until(t, "a byte", func() bool { return c.got.Load() == int64(i+1) })
				}
			}
		})
	}
	var stop atomic.Bool
	var leaders sync.WaitGroup
	for range 3 {
		leaders.Go(func() {
			for !stop.Load() {
				if !p.Lead() {
					time.Sleep(10 * time.Microsecond)
					continue
				}
				for range 5 {
					p.Poll(50 * time.Microsecond)
				}
				p.Yield()
				time.Sleep(2 * pollTick) // sometimes the background takes over
			}
		})
	}
	wg.Wait()
	for _, c := range pipes {
		until(t, "all bytes", func() bool { return c.got.Load() == each })
	}
	stop.Store(true)
	leaders.Wait()
}

// A Kick and a wake end a Poll that waits, also when they come just before it.
func TestPollKick(t *testing.T) {
	p := newTestPoller(t)
	c := newPollPipe(t, p)
	if !p.Lead() {
		t.Fatal("nobody leads, and we may not")
	}
	for i := range 300 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if i%2 == 0 {
				p.Kick()
			} else {
				p.wake(c.src)
			}
		}()
		p.Poll(-1)
		<-done
		p.Poll(0)
	}
	p.Yield()
}

// Only one leads.
func TestPollLead(t *testing.T) {
	p := newTestPoller(t)
	if !p.Lead() {
		t.Fatal("nobody leads, and we may not")
	}
	if p.Lead() {
		t.Fatal("two lead")
	}
	p.Yield()
	until(t, "lead again", p.Lead)
	p.Yield()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p.Lead() {
		t.Fatal("one leads after Close")
	}
	p.Kick()
}

// A source that is removed while others are served is not served any more.
func TestPollRemove(t *testing.T) {
	p := newTestPoller(t)
	var served atomic.Int64
	var sources [2]*pollSource
	var mu sync.Mutex
	mu.Lock()
	for i := range sources {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fds[0]); _ = unix.Close(fds[1]) })
		if _, err := unix.Write(fds[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
		sources[i], err = p.add(fds[0], func(*pollSource) {
			mu.Lock()
			defer mu.Unlock()
			served.Add(1)
			for _, s := range sources {
				p.remove(s)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mu.Unlock()
	until(t, "one is served", func() bool { return served.Load() > 0 })
	until(t, "lead", p.Lead)
	p.Poll(0)
	p.Yield()
	if n := served.Load(); n != 1 {
		t.Errorf("%d were served", n)
	}
}

// A socket that was given up is closed for everybody.
func TestRawSocketFree(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	s := &rawSocket{fd: fds[0]}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, errAgain) {
		t.Error(err)
	}
	if err := errors.Join(s.free(), s.free()); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := s.CloseWrite(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
