package ip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/oslimit"
)

// tcpPending holds the connections that have not authenticated yet. When there are too many, the
// oldest is closed. A peer authenticates within milliseconds, so a flood of silent connections cannot
// keep peers out.
type tcpPending struct {
	limit int

	mu     sync.Mutex
	conns  []*net.TCPConn
	closed bool
}

// add adds a connection, unless the network is closing.
func (q *tcpPending) add(c *net.TCPConn) bool {
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

// remove removes a connection, and reports whether it was still there.
func (q *tcpPending) remove(c *net.TCPConn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.conns)
	q.conns = slices.DeleteFunc(q.conns, func(x *net.TCPConn) bool { return x == c })
	return len(q.conns) < n
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

func (t *TCP) accept() {
	const pause = 20 * time.Millisecond
	var full time.Time // since when there is no room for connections that wait
	for {
		c, err := t.cfg.Listener.AcceptTCP()
		if err == nil {
			inherit.Conn(c)
			full = time.Time{}
		}
		switch {
		case err == nil && t.pending.add(c):
			t.wg.Go(func() { t.greet(c) })
		case err == nil:
			_ = c.Close()
			return
		case t.closed.Load() || errors.Is(err, net.ErrClosed):
			return
		default:
			// The peer left while it was in the backlog, or this process is out of descriptors.
			t.log.Debug("accept", "err", err)
			limit := oslimit.Exhausted(err)
			switch {
			case limit == nil || !waiting(t.cfg.Listener): // without room, accept fails even if nobody has connected
				full = time.Time{}
			case full.IsZero():
				full = time.Now()
			case time.Since(full) > t.cfg.limits.full:
				t.exhausted(fmt.Errorf("accept the connection of a peer: %w", limit))
			}
			time.Sleep(pause)
		}
	}
}

// exhausted reports, once, that this rank cannot go on because of a limit of its own.
func (t *TCP) exhausted(err error) {
	t.full.Do(func() {
		if !t.closed.Load() {
			t.h.Lost(t.cfg.Rank, err)
		}
	})
}

// greet authenticates a connection and then reads from it.
func (t *TCP) greet(c *net.TCPConn) {
	from, link, err := t.authenticate(c)
	if !t.pending.remove(c) && err == nil {
		err = net.ErrClosed // evicted; a peer retries
	}
	if err != nil {
		_ = c.Close()
		t.strange(c, err)
		return
	}
	// The time limit of the handshake ends before the admission: afterwards, a failure is the loss of the peer.
	p, err := t.peers[from], c.SetDeadline(time.Time{})
	in, verdict := p.admit(c, link)
	// Ready comes after the admission, so that the peer sends nothing too early. The socket takes it at once.
	err = errors.Join(err, authSend(c, uint8(verdict)))
	if in == nil {
		// Expected when both ranks leave at the same time.
		level := slog.LevelWarn
		if verdict == authLeft {
			level = slog.LevelDebug
		}
		t.log.Log(context.Background(), level, "connection refused", "peer", from, "verdict", int(verdict))
		_ = c.Close() // no reset: everything the dialler sent was read
		return
	}
	if err == nil && t.cfg.Poller != nil {
		why := t.poll(in, c)
		if why == nil {
			return
		}
		t.log.Warn("a connection is read without the poller", "peer", from, "err", why)
	}
	if err == nil {
		err = in.read(math.MaxInt)
	}
	p.inEnded(in, err)
}

func (t *TCP) authenticate(c *net.TCPConn) (int, authLink, error) {
	const drain = 4096 // larger than the hello of any version
	if err := c.SetDeadline(time.Now().Add(t.cfg.Timeout)); err != nil {
		return 0, authLink{}, err
	}
	t.tune(c)
	from, link, err := t.self.accept(c)
	if errors.Is(err, errAuth) && !errors.Is(err, errAuthMagic) {
		// A close with unread bytes sends a reset, which would destroy the reason in flight.
		_ = c.CloseWrite()
		_, _ = io.CopyN(io.Discard, c, drain)
	}
	return from, link, err
}

// strange counts and logs a connection that failed to authenticate. Those that speak the protocol
// are worth a warning, but not thousands of warnings.
func (t *TCP) strange(c *net.TCPConn, err error) {
	const loud = 16
	level := slog.LevelDebug
	n := t.strangers.Add(1)
	if n <= loud && errors.Is(err, errAuth) && !errors.Is(err, errAuthMagic) {
		level = slog.LevelWarn
	}
	t.log.Log(t.ctx, level, "stranger", "addr", c.RemoteAddr().String(), "err", err)
}

func (t *TCP) tune(c *net.TCPConn) {
	err := errors.Join(
		c.SetNoDelay(true), // this package batches small messages itself
		// Together with the user timeout, one unanswered probe would end a connection that has been
		// idle for long, after a momentary outage. Heartbeats detect silent peers.
		c.SetKeepAlive(false),
		tcpUserTimeout(c, t.cfg.Timeout),
	)
	if err != nil {
		t.log.Debug("socket options", "err", err)
	}
}
