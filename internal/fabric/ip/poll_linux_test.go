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

// pollPipe is a socket that a poller serves, and the other end of the socket.
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

// No event is lost, whether the background serves, a leader, or both alternately.
func TestPollHandOver(t *testing.T) {
	p := newTestPoller(t)
	pipes := []*pollPipe{newPollPipe(t, p), newPollPipe(t, p), newPollPipe(t, p)}
	const each = 3000
	var wg sync.WaitGroup
	for _, c := range pipes {
		wg.Go(func() {
			for i := range each {
				c.send(t)
				if i%100 == 0 { // wait until it is served, so that the poller has to block at times
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

// A Kick and a wake end a blocked Poll, even if they come just before it.
func TestPollKick(t *testing.T) {
	p := newTestPoller(t)
	c := newPollPipe(t, p)
	if !p.Lead() {
		t.Fatal("Lead failed although there is no leader")
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

// There is at most one leader.
func TestPollLead(t *testing.T) {
	p := newTestPoller(t)
	if !p.Lead() {
		t.Fatal("Lead failed although there is no leader")
	}
	if p.Lead() {
		t.Fatal("there are two leaders")
	}
	p.Yield()
	until(t, "lead again", p.Lead)
	p.Yield()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if p.Lead() {
		t.Fatal("there is a leader after Close")
	}
	p.Kick()
}

// A source that is removed while others are served is no longer served.
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

// A socket that was freed is closed for all callers.
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
