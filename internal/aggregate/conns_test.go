package aggregate

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/testenv"
)

func TestConnLimits(t *testing.T) {
	for files, want := range map[int]connLimits{
		0: {1, 1}, 1024: {256, 512}, 4096: {1024, 2048}, 1 << 30: {1024, 1 << 16},
	} {
		if got := newConnLimits(files); got != want {
			t.Errorf("%d files: %+v, want %+v", files, got, want)
		}
	}
}

// pipes are connections in memory; their other ends tell whether they are open.
func pipes(t *testing.T, s *Server, n int) (near, far []net.Conn) {
	t.Helper()
	for range n {
		a, b := net.Pipe()
		t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
		if !s.enter(a) {
			t.Fatal("the server is closed")
		}
		near, far = append(near, a), append(far, b)
	}
	return near, far
}

func isOpen(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetWriteDeadline(past); err != nil {
		return false
	}
	_, err := c.Write([]byte{0})
	return err != nil && strings.Contains(err.Error(), "timeout")
}

// Without descriptors, the server closes the older half of the strangers at once.
func TestShed(t *testing.T) {
	s := listen(t, Config{})
	if s.shed() {
		t.Error("there was nobody")
	}
	_, far := pipes(t, s, 5)
	if !s.shed() {
		t.Error("nobody was evicted")
	}
	for i, c := range far {
		if isOpen(t, c) != (i >= 3) {
			t.Errorf("connection %d: open is %t", i, isOpen(t, c))
		}
	}
	if n := s.State().Connections.Strangers; n != 3 {
		t.Errorf("%d strangers", n)
	}
}

// A stranger more than allowed evicts the oldest one.
func TestPendingLimit(t *testing.T) {
	s := listen(t, Config{})
	s.limits.pending = 2
	near, far := pipes(t, s, 3)
	if isOpen(t, far[0]) || !isOpen(t, far[1]) || !isOpen(t, far[2]) {
		t.Error("the wrong one was evicted")
	}
	if err := s.settle(near[0], true); err != errEvicted {
		t.Error(err)
	}
	if err := s.settle(near[1], true); err != nil {
		t.Error(err)
	}
}

// Too many children are refused with a reason, and far too many without.
func TestChildrenLimit(t *testing.T) {
	s := listen(t, Config{})
	s.limits.children = 1
	tree := oneLevel(t, s, 3)
	_, first := openPort(t, portConfig(tree, 0))
	first.until(t, "attached", says("waits for"))
	second, states := openPort(t, portConfig(tree, 1))
	states.until(t, "refused", says("has 1 children already", "open files", s.Addr().String()))
	_ = second.Close()
	if !testenv.Soon(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.open) == 1 }) {
		t.Fatal("the refused connection stays")
	}
	near, _ := pipes(t, s, farewells+1)
	for i, c := range near {
		want := errFull
		if i == farewells {
			want = errEvicted
		}
		if err := s.settle(c, true); err != want {
			t.Errorf("connection %d: %v, want %v", i, err, want)
		}
	}
}

// Large messages are read a few at a time, and their places come back whether the job is refused or not.
func TestLargeMessages(t *testing.T) {
	s := listen(t, Config{})
	for range maxParallel {
		s.large <- struct{}{}
	}
	names := strings.Repeat("x", largeAttach)
	tree := parseTree(t, fmt.Sprintf("%v=0;%s:1=1>%v", s.Addr(), names, s.Addr()), 2)
	_, refused := openPort(t, portConfig(parseTree(t, fmt.Sprintf("%v=0>%s:1;%s:1=1", s.Addr(), names, names), 2), 0))
	_, admitted := openPort(t, func() PortConfig { c := portConfig(tree, 0); c.Session = 8; return c }())
	_, small := openPort(t, func() PortConfig { c := portConfig(oneLevel(t, s, 2), 0); c.Session = 9; return c }())
	small.until(t, "attached", says("waits for"))
	if n := len(s.State().Jobs); n != 1 {
		t.Errorf("%d jobs", n)
	}
	<-s.large
	admitted.until(t, "attached", says("waits for"))
	refused.until(t, "refused", says("refuses the job"))
	for range maxParallel - 1 {
		<-s.large
	}
	if !testenv.Soon(func() bool { return len(s.large) == 0 || len(s.large) == 1 }) { // a refused rank tries again
		t.Errorf("%d places are not free", len(s.large))
	}
}

// stateLogger fails if a line is logged while the server is locked.
type stateLogger struct {
	slog.Handler
	server func() *Server
	lines  *atomic.Int64
}

func (h stateLogger) Enabled(context.Context, slog.Level) bool { return true }
func (h stateLogger) Handle(context.Context, slog.Record) error {
	h.lines.Add(1)
	h.server().State() // takes the lock
	return nil
}

// A log that blocks does not block other jobs: no line is written under the lock.
func TestLogWithoutLock(t *testing.T) {
	var s atomic.Pointer[Server]
	var lines atomic.Int64
	h := stateLogger{slog.DiscardHandler, s.Load, &lines}
	s.Store(listen(t, Config{Logger: slog.New(h)}))
	tree := oneLevel(t, s.Load(), 2)
	w := join(t, tree, nil)
	w.ready(t)
	bad := portConfig(tree, 0)
	bad.Chunk = 8
	_, states := openPort(t, bad)
	states.until(t, "refused", says("refuses"))
	w.close()
	if !testenv.Soon(func() bool { return len(s.Load().State().Jobs) == 0 && lines.Load() >= 6 }) {
		t.Errorf("%d lines", lines.Load()) // new, ready, a refusal, two that left, ended
	}
}

func TestWarnings(t *testing.T) {
	var w warnings
	now := time.Unix(1e9, 0)
	for minute := range 3 {
		for i := range 2 * maxWarnings {
			if got := w.allow(now); got != (i < maxWarnings) {
				t.Errorf("minute %d, warning %d: %t", minute, i, got)
			}
		}
		now = now.Add(warningsPeriod)
	}
}

// A parent that does not read a large attach message does not hold up the end of its child.
func TestEndWhileAttaching(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	c := &client{
		addr: l.Addr().String(), key: siteKey, timing: Timing{Heartbeat: time.Hour, Expiry: time.Hour, Retry: time.Hour},
		log:       slog.New(slog.DiscardHandler),
		attach:    func() *attach { return &attach{Tree: strings.Repeat("x", 64<<20)} }, // more than the buffers hold
		connected: func(netip.AddrPort) { t.Error("the message was read") },
		status:    func(status) {},
		leave:     func() string { return "" },
	}
	ended := make(chan struct{})
	go func() { c.run(ctx); close(ended) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sealed, err := authParent(conn, siteKey)
	if err == nil {
		_, err = readSize(sealed, 1<<30) // the child writes
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
}
