package ip

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"time"
)

// tcpPending is the connections that have not proved yet to be of a peer. When
// there are too many the oldest goes: a peer needs milliseconds, so who floods us
// with silent connections cannot keep peers out.
type tcpPending struct {
	limit int

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// add takes a connection, unless we are closing.
func (q *tcpPending) add(c net.Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if len(q.conns) >= q.limit {
		_ = q.conns[0].Close()
		q.conns = slices.Delete(q.conns, 0, 1)
	}
	q.conns = append(q.conns, c)
	return true
}

// remove takes a connection out and says whether it still was there.
func (q *tcpPending) remove(c net.Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.conns, c)
	if i < 0 {
		return false
	}
	q.conns = slices.Delete(q.conns, i, i+1)
	return true
}

func (q *tcpPending) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, c := range q.conns {
		_ = c.Close()
	}
	q.conns = nil
}

// accept is the accept loop.
func (t *TCP) accept() {
	const pause = 20 * time.Millisecond
	for {
		c, err := t.cfg.Listener.Accept()
		switch {
		case t.closed.Load() || errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = c.Close()
			}
			return
		case err != nil:
			// Out of descriptors, most likely: it may pass.
			t.log.Warn("accept", "err", err)
			time.Sleep(pause)
			continue
		}
		if !t.pending.add(c) {
			_ = c.Close()
			return
		}
		t.wg.Go(func() { t.greet(c) })
	}
}

// greet authenticates a connection and then reads from it.
func (t *TCP) greet(c net.Conn) {
	from, link, err := t.authenticate(c)
	if !t.pending.remove(c) && err == nil {
		err = net.ErrClosed // it had to go; a peer will try again
	}
	if err != nil {
		_ = c.Close()
		t.strange(c, err)
		return
	}
	tc, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		t.log.Error("the listener is not one of TCP")
		return
	}
	in, verdict := t.peers[from].admit(tc, link)
	// Ready comes after the peer is admitted, so that nothing it says is too early.
	err = authReady(c, verdict)
	if in == nil {
		// Ranks that leave at the same time meet like that.
		level := slog.LevelWarn
		if verdict == authLeft {
			level = slog.LevelDebug
		}
		t.log.Log(context.Background(), level, "connection refused", "peer", from, "verdict", int(verdict))
		_ = c.Close() // no reset: the dialler has said nothing that we have not read
		return
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err == nil && t.cfg.Poller != nil {
		why := t.poll(in, tc)
		if why == nil {
			return
		}
		t.log.Warn("a connection is read without the poller", "peer", from, "err", why)
	}
	if err == nil {
		err = in.read(math.MaxInt)
	}
	t.peers[from].inEnded(in, err)
}

// tcpDrain is more than the hello of any version.
const tcpDrain = 4096

func (t *TCP) handshake() time.Duration { return min(tcpHandshake, t.cfg.Timeout) }

func (t *TCP) authenticate(c net.Conn) (int, authLink, error) {
	if err := c.SetDeadline(time.Now().Add(t.handshake())); err != nil {
		return 0, authLink{}, err
	}
	if tc, ok := c.(*net.TCPConn); ok {
		t.tune(tc)
	}
	from, link, err := t.self.accept(c)
	if errors.Is(err, errAuth) && !errors.Is(err, errAuthMagic) {
		if tc, ok := c.(*net.TCPConn); ok {
			// Closing with bytes unread would be a reset, which destroys the reason on its way.
			_ = tc.CloseWrite()
			_, _ = io.CopyN(io.Discard, c, tcpDrain)
		}
	}
	return from, link, err
}

// strange counts and logs what was not a peer. One that speaks our protocol is
// worth a warning, but not thousands of them.
func (t *TCP) strange(c net.Conn, err error) {
	const loud = 16
	level := slog.LevelDebug
	n := t.strangers.Add(1)
	if n <= loud && errors.Is(err, errAuth) && !errors.Is(err, errAuthMagic) {
		level = slog.LevelWarn
	}
	t.log.Log(t.ctx, level, "stranger", "addr", c.RemoteAddr().String(), "err", err)
}

// tune sets the options of a connection.
func (t *TCP) tune(c *net.TCPConn) {
	err := errors.Join(
		c.SetNoDelay(true), // we collect small messages ourselves
		// Together with the user timeout, one unanswered probe would end a connection that
		// has been idle for long: an outage of a moment. Who is silent, heartbeats tell.
		c.SetKeepAlive(false),
		tcpUserTimeout(c, t.cfg.Timeout),
	)
	if err != nil {
		t.log.Debug("socket options", "err", err)
	}
}
