package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
)

// faulty is a target that calls a function before each write.
type faulty struct {
	target
	writes atomic.Int32
	before func(n int) error // n counts writes from 1
}

func (f *faulty) write(seg int, data []byte, sum hash) error {
	if err := f.before(int(f.writes.Add(1))); err != nil {
		return err
	}
	return f.target.write(seg, data, sum)
}

// withFault returns an option that injects a fault.
func withFault(o ReceiveOptions, before func(n int) error) ReceiveOptions {
	o.wrap = func(t target) target { return &faulty{target: t, before: before} }
	return o
}

const (
	faultSegment  = 64 << 10
	faultSegments = 40
	faultSize     = faultSegment*faultSegments - 100
)

// others starts receivers without faults, and returns a function that checks them.
func others(t *testing.T, b *testbed, n int, dst string, data []byte) (wait func()) {
	t.Helper()
	var all []<-chan recvResult
	for i := range n {
		all = append(all, b.receive(t.Context(), ReceiveOptions{Dir: filepath.Join(dst, fmt.Sprint(i)), Name: fmt.Sprint(i)}))
	}
	return func() {
		t.Helper()
		for i, ch := range all {
			if r := <-ch; r.err != nil {
				t.Errorf("receiver %d: %v", i, r.err)
			}
			wantSame(t, filepath.Join(dst, fmt.Sprint(i), "file"), data)
		}
	}
}

// A receiver ends, or runs out of disk, at every stage. The others are not harmed. It resumes without receiving
// verified data again.
func TestLostReceiver(t *testing.T) {
	for _, fault := range []string{"killed", "disk full"} {
		for _, stage := range []int{1, faultSegments / 2, faultSegments} {
			t.Run(fmt.Sprintf("%s at segment %d", fault, stage), func(t *testing.T) {
				src, dst := t.TempDir(), t.TempDir()
				data := random(faultSize, 2)
				o := SendOptions{
					Paths: []string{write(t, data, src, "file")}, To: 3, Segment: faultSegment, Linger: testTimeout,
					Timeout: testTimeout,
				}
				b := serve(t.Context(), t, o)
				wait := others(t, b, 2, dst, data)
				bad := ReceiveOptions{Dir: filepath.Join(dst, "bad"), Name: "bad", Retry: -1}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := <-b.receive(ctx, withFault(bad, func(n int) error {
					switch {
					case n < stage:
						return nil
					case fault == "killed":
						cancel()
						return context.Canceled
					}
					return syscall.ENOSPC
				}))
				if r.err == nil {
					t.Fatal("no error")
				}
				again := <-b.receive(t.Context(), bad)
				if again.err != nil {
					t.Fatal(again.err)
				}
				wait()
				wantSame(t, filepath.Join(dst, "bad", "file"), data)
				if again.res.Received+again.res.Resumed != faultSize {
					t.Errorf("received %d and resumed %d of %d bytes", again.res.Received, again.res.Resumed, faultSize)
				}
				// The first write may fail together with those that run beside it.
				if limit := int64(stage-storeWorkers) * faultSegment; again.res.Resumed < limit {
					t.Errorf("resumed %d bytes, want at least %d", again.res.Resumed, limit)
				}
				s := <-b.sent
				if s.err != nil || len(s.sum.Receivers) != 3 {
					t.Errorf("%v, %+v", s.err, s.sum)
				}
			})
		}
	}
}

// Without lingering, the sender ends and names the receiver that was lost.
func TestLostReceiverIsNamed(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	data := random(faultSize, 3)
	b := serve(t.Context(), t, SendOptions{
		Paths: []string{write(t, data, src, "file")}, To: 2, Segment: faultSegment, Timeout: testTimeout,
	})
	wait := others(t, b, 1, dst, data)
	r := <-b.receive(t.Context(), withFault(ReceiveOptions{Dir: filepath.Join(dst, "bad"), Name: "bad", Retry: -1},
		func(int) error { return syscall.ENOSPC }))
	if !errors.Is(r.err, syscall.ENOSPC) {
		t.Error(r.err)
	}
	wait()
	s := <-b.sent
	if !errors.Is(s.err, ErrIncomplete) {
		t.Error(s.err)
	}
	for _, r := range s.sum.Receivers {
		if r.Complete == (r.Name == "bad") || (r.Error == "") != r.Complete {
			t.Errorf("%+v", r)
		}
	}
}

// A receiver with a slow disk falls behind. The others finish without it, and it gets what it dropped afterwards.
func TestSlowDisk(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	data := random(faultSize, 4)
	othersDone := make(chan struct{})
	var lagging atomic.Bool
	var complete atomic.Int32
	b := serve(t.Context(), t, SendOptions{
		Paths: []string{write(t, data, src, "file")}, To: 3, Segment: faultSegment, MaxLag: 4 * faultSegment,
		Timeout: testTimeout,
		Events: func(e Event) {
			switch e.Event {
			case EventLagging:
				lagging.Store(true)
			case EventComplete:
				if complete.Add(1) == 2 {
					close(othersDone)
				}
			}
		},
	})
	wait := others(t, b, 2, dst, data)
	o := ReceiveOptions{Dir: filepath.Join(dst, "slow"), Name: "slow"}
	slow := b.receive(t.Context(), withFault(o, func(int) error {
		<-othersDone
		return nil
	}))
	wait()
	if r := <-slow; r.err != nil {
		t.Error(r.err)
	}
	wantSame(t, filepath.Join(dst, "slow", "file"), data)
	if s := <-b.sent; s.err != nil || !lagging.Load() {
		t.Errorf("%v, lagging: %v", s.err, lagging.Load())
	}
}

// A receiver that comes late gets everything, and every byte once.
func TestLateReceiver(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	data := random(faultSize, 5)
	joined := make(chan struct{})
	half := make(chan struct{})
	var ready atomic.Int32
	b := serve(t.Context(), t, SendOptions{
		Paths: []string{write(t, data, src, "file")}, To: 1, Segment: faultSegment, MaxLag: faultSegment,
		Timeout: testTimeout,
		Events: func(e Event) {
			if e.Event == EventReceiver && ready.Add(1) == 2 {
				close(joined)
			}
		},
	})
	var once sync.Once
	first := b.receive(t.Context(), withFault(ReceiveOptions{Dir: filepath.Join(dst, "first")}, func(n int) error {
		if n >= faultSegments/2 {
			once.Do(func() { close(half) })
			<-joined // so that the transfer does not end before
		}
		return nil
	}))
	<-half
	late := <-b.receive(t.Context(), ReceiveOptions{Dir: filepath.Join(dst, "late")})
	if late.err != nil {
		t.Fatal(late.err)
	}
	if r := <-first; r.err != nil {
		t.Error(r.err)
	}
	wantSame(t, filepath.Join(dst, "first", "file"), data)
	wantSame(t, filepath.Join(dst, "late", "file"), data)
	if late.res.Received != faultSize {
		t.Errorf("the late receiver received %d of %d bytes", late.res.Received, faultSize)
	}
	s := <-b.sent
	if s.err != nil {
		t.Error(s.err)
	}
	if limit := int64(faultSize) + (faultSegments/2+window+2*storeWorkers+4)*faultSegment; s.sum.SentBytes > limit {
		t.Errorf("sent %d bytes, want at most %d", s.sum.SentBytes, limit)
	}
}

// A sender that is started again continues where the first one ended.
func TestRestartedSender(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	data := random(faultSize, 6)
	o := SendOptions{
		Paths: []string{write(t, data, src, "file")}, To: 2, Segment: faultSegment, MaxLag: faultSegment,
		Timeout: testTimeout,
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b := serve(ctx, t, o)
	var all []<-chan recvResult
	for _, name := range []string{"a", "b"} {
		all = append(all, b.receive(t.Context(), withFault(ReceiveOptions{
			Dir: filepath.Join(dst, name), Name: name, Retry: testTimeout,
		}, func(n int) error {
			if n == faultSegments/2 {
				cancel()
			}
			return nil
		})))
	}
	if s := <-b.sent; !errors.Is(s.err, context.Canceled) {
		t.Fatal(s.err)
	}
	ln, err := net.Listen("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	o.Listener = ln
	sum, err := Send(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for i, ch := range all {
		r := <-ch
		if r.err != nil {
			t.Fatal(r.err)
		}
		// At most the segments that were in flight arrive twice.
		if limit := int64(faultSize) + 2*window*faultSegment; r.res.Received > limit || r.res.Resumed < faultSize/4 {
			t.Errorf("receiver %d received %d bytes, resumed %d", i, r.res.Received, r.res.Resumed)
		}
	}
	for _, name := range []string{"a", "b"} {
		wantSame(t, filepath.Join(dst, name, "file"), data)
	}
	if sum.SentBytes > int64(faultSize)-faultSize/4 {
		t.Errorf("the second sender sent %d bytes", sum.SentBytes)
	}
}

// A receiver that is silent, but whose connection is open, is lost after the timeout.
func TestSilentReceiver(t *testing.T) {
	testenv.Soak(t, "it waits for a timeout of 1 s, in which no other receiver may be silent")
	src, dst := t.TempDir(), t.TempDir()
	data := random(faultSize, 7)
	b := serve(t.Context(), t, SendOptions{
		Paths: []string{write(t, data, src, "file")}, To: 2, Segment: faultSegment, Timeout: time.Second,
	})
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := authReceiver(conn, nil, false); err != nil {
		t.Fatal(err)
	}
	c := newControl(conn, testTimeout)
	hello := message{Kind: msgHello, Version: version, ID: "0123456789abcdef0123456789abcdef", Name: "silent"}
	if err := c.send(hello); err != nil {
		t.Fatal(err)
	}
	if err := c.send(message{Kind: msgClaims, Last: true}, message{Kind: msgReady}); err != nil {
		t.Fatal(err)
	}
	wait := others(t, b, 1, dst, data)
	wait()
	s := <-b.sent
	if !errors.Is(s.err, ErrIncomplete) {
		t.Error(s.err)
	}
}
