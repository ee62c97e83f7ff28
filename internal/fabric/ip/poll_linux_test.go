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
	return addPollPipe(t, p.add)
}

func addPollPipe(t *testing.T, add func(int, func(*pollSource)) (*pollSource, error)) *pollPipe {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &pollPipe{write: fds[1]}
	s := &rawSocket{fd: fds[0]}
	c.src, err = add(fds[0], func(*pollSource) {
		var b [16]byte
		for s.dry = false; ; {
			n, err := s.Read(b[:])
			if err != nil {
				// The poller may still serve the socket when the test ends, which closes it.
				if !errors.Is(err, errAgain) && !errors.Is(err, net.ErrClosed) {
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
	return newTestPollerFor(t, false)
}

func newTestPollerFor(t *testing.T, alone bool) *Poller {
	t.Helper()
	p, err := newPoller(alone)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// sleepers runs a test for leaders that sleep in a system call, and for those that sleep in Go's poller.
func sleepers(t *testing.T, test func(*testing.T, *Poller)) {
	t.Helper()
	for name, alone := range map[string]bool{"call": false, "park": true} {
		t.Run(name, func(t *testing.T) { test(t, newTestPollerFor(t, alone)) })
	}
}

// No event is lost, whether the background serves, a leader, or both alternately.
func TestPollHandOver(t *testing.T) { sleepers(t, testPollHandOver) }

func testPollHandOver(t *testing.T, p *Poller) {
	t.Helper()
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
func TestPollKick(t *testing.T) { sleepers(t, testPollKick) }

func testPollKick(t *testing.T, p *Poller) {
	t.Helper()
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

// Poll ends after its time, also after an earlier sleep that ended before its time.
func TestPollTime(t *testing.T) {
	sleepers(t, func(t *testing.T, p *Poller) {
		t.Helper()
		if !p.Lead() {
			t.Fatal("Lead failed although there is no leader")
		}
		defer p.Yield()
		for _, wait := range []time.Duration{50 * time.Microsecond, 2 * time.Millisecond, 200 * time.Microsecond} {
			for start := time.Now(); time.Since(start) < wait; {
				p.Poll(wait)
			}
			p.Kick()
			p.Poll(time.Hour)
		}
	})
}

// A socket that is ready before the leader sleeps ends the sleep, even if Go's poller has seen it before.
func TestPollReadyBefore(t *testing.T) {
	p := newTestPollerFor(t, true)
	c := newPollPipe(t, p)
	if !p.Lead() {
		t.Fatal("Lead failed although there is no leader")
	}
	defer p.Yield()
	for range 50 {
		c.send(t)
		time.Sleep(time.Millisecond) // Go's poller sees the byte
		p.park.sleep(-1)
		p.Poll(0)
	}
}

// Datagrams do not end Gather, but are served after it. Other sockets end it.
func TestPollGather(t *testing.T) {
	sleepers(t, func(t *testing.T, p *Poller) {
		t.Helper()
		bulk, other := addPollPipe(t, p.addBulk), newPollPipe(t, p)
		if !p.Lead() {
			t.Fatal("Lead failed although there is no leader")
		}
		defer p.Yield()
		for i := range int64(100) {
			bulk.send(t)
			p.Gather(100 * time.Microsecond)
			if got := bulk.got.Load(); got != i {
				t.Fatalf("Gather %d served the datagrams", i)
			}
			for bulk.got.Load() == i {
				p.Poll(time.Hour)
			}
			other.send(t)
			for other.got.Load() == i {
				p.Gather(time.Hour)
			}
		}
	})
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
