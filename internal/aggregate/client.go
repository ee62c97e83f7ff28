package aggregate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/inherit"
)

// A client keeps a child attached to its aggregator. Its functions are called by the goroutine of run.
type client struct {
	addr   string
	from   netip.Addr // of the connection; invalid: any
	key    []byte
	timing Timing
	log    *slog.Logger
	attach func() *attach
	// connected gets the address of the aggregator, and the zero address when the attachment has ended.
	connected func(netip.AddrPort)
	// status gets the state of the job. Its reason names the aggregator at fault.
	status func(status)
	leave  func() string // reason for the aggregator when run ends
	pause  time.Duration // before the first attempt
}

// Times that do not depend on the network's condition.
const (
	handshakeTime = 5 * time.Second
	detachTime    = time.Second
)

// run attaches again and again until the context ends.
func (c *client) run(ctx context.Context) {
	last := ""
	if c.pause > 0 {
		select {
		case <-time.After(c.pause):
		case <-ctx.Done():
		}
	}
	for ctx.Err() == nil {
		err := c.session(ctx)
		if ctx.Err() != nil {
			return
		}
		why := clip(fmt.Sprintf("aggregator %s: %s", c.addr, explain(err, c.timing)))
		if refusal, ok := errors.AsType[*refusedError](err); ok {
			why = refusal.why // it names the aggregator
		}
		if why != last { // a retry that fails alike says nothing new
			c.log.Debug("not attached to an aggregator", "reason", why)
			last = why
		}
		c.status(status{Why: why})
		select {
		case <-time.After(c.timing.Retry):
		case <-ctx.Done():
		}
	}
}

// refusedError is an aggregator's refusal.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// explain describes the end of a connection for people.
func explain(err error, t Timing) string {
	var op *net.OpError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed the connection"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer for %v", t.Expiry)
	case errors.As(err, &op):
		text := op.Err.Error()
		if sys, ok := errors.AsType[*os.SyscallError](op.Err); ok {
			text = sys.Err.Error()
		}
		if op.Op == "dial" {
			return "cannot connect: " + text
		}
		return "lost the connection: " + text
	}
	return err.Error()
}

// session attaches once, and returns why the attachment ended.
func (c *client) session(ctx context.Context) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// The end of the context interrupts the read, not a write: detach is still sent. If a write blocks, the connection
	// ends soon in any case.
	kill := time.AfterFunc(math.MaxInt64, func() { _ = conn.Close() })
	defer kill.Stop()
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		kill.Reset(2 * detachTime)
		_ = conn.SetReadDeadline(past)
	})
	defer stop()
	if err := writeMessage(conn, &message{Kind: msgAttach, Attach: c.attach()}, c.timing.Expiry); err != nil {
		return err
	}
	c.connected(plain(conn.RemoteAddr().(*net.TCPAddr).AddrPort()))
	defer c.connected(netip.AddrPort{})
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.ping(conn, done)
	}()
	defer func() { close(done); _ = conn.Close(); <-ended }()
	err = c.listen(ctx, conn)
	if ctx.Err() != nil {
		<-interrupted // otherwise it could interrupt the farewell
		c.detach(conn)
	}
	return err
}

// detach says farewell, and waits until the aggregator has closed the connection. If this side closed it with unread
// messages, the farewell could be lost.
func (c *client) detach(conn net.Conn) {
	if writeMessage(conn, &message{Kind: msgDetach, Why: clip(c.leave())}, detachTime) != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(detachTime)) // fails only if closed, as the read will
	for {
		if _, err := readMessage(conn, maxSmall); err != nil {
			return
		}
	}
}

// past is a deadline that has passed. The zero time would mean no deadline.
var past = time.Unix(1, 0)

// dial connects and authenticates.
func (c *client) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: handshakeTime}
	if c.from.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: c.from.AsSlice()}
	}
	conn, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return nil, err
	}
	inherit.Conn(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err = conn.SetDeadline(time.Now().Add(handshakeTime)); err == nil {
		var sealed net.Conn
		if sealed, err = authChild(conn, c.key); err == nil {
			if err = conn.SetDeadline(time.Time{}); err == nil {
				return sealed, nil
			}
		}
	}
	_ = conn.Close()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: is it an aggregator?", handshakeTime)
	}
	return nil, err
}

// ping sends heartbeats. A write that fails also ends the read.
func (c *client) ping(conn net.Conn, done chan struct{}) {
	tick := time.NewTicker(c.timing.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		if err := writeMessage(conn, &message{Kind: msgPing}, c.timing.Expiry); err != nil {
			_ = conn.Close()
			return
		}
	}
}

// listen reads messages until the connection ends.
func (c *client) listen(ctx context.Context, conn net.Conn) error {
	for {
		if err := conn.SetReadDeadline(time.Now().Add(c.timing.Expiry)); err != nil {
			return err
		}
		if ctx.Err() != nil { // the deadline above may have replaced the interruption
			return ctx.Err()
		}
		m, err := readMessage(conn, maxSmall)
		if err != nil {
			return err
		}
		switch m.Kind {
		case msgPong:
		case msgStatus:
			c.status(*m.Status)
		case msgDetach:
			return &refusedError{m.Why}
		default:
			return fmt.Errorf("%w: unknown kind %s", errMessage, strings.ToValidUTF8(m.Kind[:min(len(m.Kind), maxName)], "?"))
		}
	}
}
