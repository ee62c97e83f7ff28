package aggregate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/oslimit"
)

const (
	// maxPending limits connections that have not proved the site key. Another one evicts the oldest. Silent
	// connections therefore cannot keep children out, and an evicted child tries again.
	maxPending = 1024
	// maxChildren limits connections that have proved the site key.
	maxChildren = 1 << 16
	// farewells is how many more connections may learn that there are too many.
	farewells = 64
	// maxParallel is how many large messages are read at a time. Parsed, one takes tens of MiB.
	maxParallel = 4
	largeAttach = 64 << 10
)

var (
	errEvicted = errors.New("too many connections")
	errFull    = errors.New("too many children")
)

// connLimits are limits of connections.
type connLimits struct{ pending, children int }

// newConnLimits leaves a quarter of the files for connections to the parent, and for everything else.
func newConnLimits(files int) connLimits {
	return connLimits{pending: max(1, min(maxPending, files/4)), children: max(1, min(maxChildren, files/2))}
}

func (s *Server) accept() {
	for {
		conn, err := s.lis.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if full := oslimit.Exhausted(err); full != nil {
				s.full.Do(func() { s.log.Warn("cannot accept connections", "err", full) })
				if s.shed() { // strangers hold what is missing
					continue
				}
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		inherit.Conn(conn)
		s.conns.accepted.Add(1)
		if !s.enter(conn) {
			_ = conn.Close()
			return
		}
		s.wg.Go(func() {
			s.serve(conn)
			s.mu.Lock()
			delete(s.open, conn)
			s.mu.Unlock()
			_ = conn.Close()
		})
	}
}

// enter makes a connection pending; it returns false once the server is closed.
func (s *Server) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.pending) >= s.limits.pending {
		s.evict(1)
	}
	s.pending = append(s.pending, conn)
	s.open[conn] = true
	return true
}

// evict closes the oldest pending connections. The caller holds mu.
func (s *Server) evict(n int) {
	for _, c := range s.pending[:n] {
		s.conns.strangers.Add(1)
		_ = c.Close()
	}
	s.pending = slices.Delete(s.pending, 0, n)
}

// shed evicts half of the pending connections; it returns false if there are none.
func (s *Server) shed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := (len(s.pending) + 1) / 2
	s.evict(n)
	return n > 0
}

// settle ends that a connection is pending. It returns errEvicted or errFull if the connection must end.
func (s *Server) settle(conn net.Conn, authentic bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.pending, conn)
	if i < 0 {
		return errEvicted
	}
	s.pending = slices.Delete(s.pending, i, i+1)
	n := len(s.open) - len(s.pending)
	switch {
	case !authentic || n <= s.limits.children:
		return nil
	case n <= s.limits.children+farewells:
		s.conns.refused.Add(1)
		return errFull
	}
	s.conns.refused.Add(1)
	return errEvicted
}

// A greeting is an authenticated connection with its attach message.
type greeting struct {
	conn   net.Conn // sealed
	attach *attach
	done   func() // frees the place of a large message
}

// greet authenticates a connection, and reads its attach message. With errFull, the result has the connection.
func (s *Server) greet(conn net.Conn) (g greeting, err error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return g, err
	}
	g.conn, err = authParent(conn, s.cfg.SiteKey)
	if full := s.settle(conn, err == nil); full != nil {
		return g, full
	}
	if err != nil {
		return g, err
	}
	size, err := readSize(g.conn, maxMessage)
	if err != nil {
		return g, err
	}
	if g.done, err = s.reserve(conn, size); err != nil {
		return g, err
	}
	m, err := readBody(g.conn, size)
	if err == nil && m.Kind != msgAttach {
		err = fmt.Errorf("%w: the first one does not attach", errMessage)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		g.done()
		return g, err
	}
	g.attach = m.Attach
	return g, nil
}

// reserve waits for a place to read a large message.
func (s *Server) reserve(conn net.Conn, size int) (done func(), err error) {
	if size <= largeAttach {
		return func() {}, nil
	}
	patience := time.NewTimer(s.cfg.Timing.Expiry) // the child does not wait longer
	defer patience.Stop()
	select {
	case s.large <- struct{}{}:
	case <-patience.C:
		return nil, errors.New("too many large messages at a time")
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
	done = func() { <-s.large }
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// A note is a line for the log.
type note struct {
	level slog.Level
	text  string
	args  []any
}

// note logs a line when the caller unlocks mu by unlock: a log may block, and would then block all jobs. The caller
// holds mu.
func (s *Server) note(level slog.Level, text string, args ...any) {
	s.notes = append(s.notes, note{level, text, args})
}

// unlock unlocks mu and writes the notes.
func (s *Server) unlock() {
	notes := s.notes
	s.notes = nil
	s.mu.Unlock()
	for _, n := range notes {
		s.log.Log(context.Background(), n.level, n.text, n.args...)
	}
}

// Limits of the warnings that strangers can cause.
const (
	maxWarnings    = 16
	warningsPeriod = time.Minute
	maxLogged      = 256 // bytes of a reason
)

// warnings limits the warnings of a period.
type warnings struct {
	since time.Time
	n     int
}

// allow reports whether another warning may be logged.
func (w *warnings) allow(now time.Time) bool {
	if now.Sub(w.since) >= warningsPeriod {
		*w = warnings{since: now}
	}
	w.n++
	return w.n <= maxWarnings
}

// warn logs a warning that strangers cause, within limits.
func (s *Server) warn(text string, args ...any) {
	s.mu.Lock()
	defer s.unlock()
	if s.warnings.allow(time.Now()) {
		s.note(slog.LevelWarn, text, args...)
	}
}

// refuse logs a refusal, unless it repeats the last one: children try again.
func (s *Server) refuse(a *attach, err error, from net.Addr) {
	s.conns.refused.Add(1)
	why, name := clipTo(err.Error(), maxLogged), clipTo(a.Job, maxName)
	text := name + ": " + why
	s.mu.Lock()
	defer s.unlock()
	if text == s.refusal {
		return
	}
	s.refusal = text
	if s.warnings.allow(time.Now()) {
		s.note(slog.LevelWarn, "refused a job", "job", name, "from", from, "reason", why)
	}
}

// count notes a connection that did not attach.
func (s *Server) count(err error, from net.Addr) {
	switch {
	case errors.Is(err, errKey):
		s.conns.wrongKeys.Add(1)
		s.warn("refused a connection with another site key", "from", from)
	case errors.Is(err, errVersion):
		s.conns.wrongVersions.Add(1)
		s.warn("refused a connection of another version", "from", from, "reason", err)
	default:
		s.conns.strangers.Add(1)
	}
}
