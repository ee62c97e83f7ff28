package ip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/oslimit"
)

// link dials the peer, hands the connection to write, and watches it. The peer sends nothing on it
// but a goodbye, so the end of the peer shows at once, even if this rank has nothing to send.
func (p *peer) link(ctx context.Context) {
	c, link, err := p.dial(ctx)
	if err != nil {
		if full := oslimit.ExhaustedDial(err); full != nil {
			p.t.exhausted(fmt.Errorf("connect to rank %d: %w", p.rank, full))
			p.drop(p.t.cfg.limits.flush) // the peer is not lost
		}
		p.outEnded(err)
		return
	}
	p.mu.Lock()
	if p.links.State() == session.Gone {
		p.mu.Unlock()
		_ = c.Close()
		p.outEnded(fabric.ErrClosed)
		return
	}
	p.out, p.auth = c, link
	p.kick()
	p.mu.Unlock()
	p.outEnded(p.watch(link.reader(c)))
}

// watch reads until the connection ends.
func (p *peer) watch(c io.Reader) error {
	var b [session.StreamPrefix]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the peer closed our connection")
		}
		return err
	}
	if h, err := session.ParseStream(b[:]); err != nil || h.Kind != session.Goodbye {
		return fmt.Errorf("%w: on a connection that we send on", session.ErrMalformed)
	}
	p.happened(p.links.OutGoodbye) // the peer has no connection of its own
	_, _ = c.Read(b[:])
	return fabric.ErrGoodbye
}

// dial connects to the peer. It retries until the peer has been silent for the timeout, since the peer may be slow to
// start, or busy: an answer that leads to nothing is a sign of life as well.
func (p *peer) dial(ctx context.Context) (*net.TCPConn, authLink, error) {
	const first, limit = 5 * time.Millisecond, 200 * time.Millisecond
	t := p.t
	if p.rank != (t.cfg.Rank+1)%t.cfg.Size { // heartbeats go to the next rank, and must not wait for connections to others
		end, err := t.turns.take(ctx)
		if err != nil {
			return nil, authLink{}, fmt.Errorf("connect: %w", err)
		}
		defer end()
	}
	begin := time.Now()
	sign := begin
	var full time.Time // of the first attempt for which this rank itself lacked something
	for pause := first; ; pause = min(2*pause, limit) {
		c, link, answered, err := p.try(ctx)
		if answered {
			sign = time.Now()
		}
		retry := ctx.Err() == nil && time.Since(sign) < t.cfg.Timeout
		switch {
		case err == nil:
			return c, link, nil
		case errors.Is(err, errAuthLeft):
			return nil, link, fabric.ErrGoodbye
		case errors.Is(err, errAuth):
			t.log.Warn("connect", "peer", p.rank, "err", err)
			retry = false
		case oslimit.ExhaustedDial(err) != nil:
			if full.IsZero() {
				full = time.Now()
			}
			retry = retry && time.Since(full) <= t.cfg.limits.full
		case errors.Is(err, syscall.ECONNREFUSED):
			retry = retry && time.Since(begin) <= t.cfg.limits.refused && p.state() == session.Open
		}
		if retry {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				continue
			}
		}
		return nil, link, fmt.Errorf("connect: %w", err)
	}
}

// try makes one attempt, and reports whether the peer answered.
func (p *peer) try(ctx context.Context) (_ *net.TCPConn, link authLink, answered bool, err error) {
	t := p.t
	d := net.Dialer{KeepAlive: -1, Timeout: min(t.cfg.limits.connect, t.cfg.Timeout)} // see tune
	d.SetMultipathTCP(false)
	if t.cfg.Local.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: t.cfg.Local.AsSlice(), Zone: t.cfg.Local.Zone()}
		d.Control = tcpLatePort
	}
	nc, err := d.DialContext(ctx, "tcp", t.cfg.Addrs[p.rank])
	if err != nil {
		return nil, link, false, err
	}
	inherit.Conn(nc)
	c := nc.(*net.TCPConn)
	t.tune(c)
	patient := &patientConn{Conn: c, ctx: ctx, limit: tcpBusy * t.cfg.Timeout, signs: p.recvd.Load}
	// A deadline in the past ends the handshake when the context does.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	link, err = t.self.dial(patient, p.rank)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		return nil, authLink{}, patient.answered, err
	}
	return c, link, true, nil
}

// patientConn is a connection whose other side may be slow. It fails once nothing was heard of that side for a time:
// an attempt that is given up and repeated costs a busy machine the work twice.
type patientConn struct {
	net.Conn
	ctx      context.Context
	limit    time.Duration
	signs    func() uint64 // grows with other signs of life
	answered bool
}

func (c *patientConn) Read(b []byte) (n int, err error) {
	for {
		before := c.signs()
		if err := c.SetDeadline(time.Now().Add(c.limit)); err != nil {
			return 0, err
		}
		if c.ctx.Err() != nil { // it may have ended before the new deadline
			return 0, c.ctx.Err()
		}
		n, err = c.Conn.Read(b)
		c.answered = c.answered || n > 0
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || c.ctx.Err() != nil || c.signs() == before {
			return n, err
		}
	}
}

// tcpTurns limits the connections that a rank opens at a time. Ranks that all connect to all others at once keep each
// other so busy that no handshake ends for long.
type tcpTurns chan struct{}

const (
	tcpAtOnce = 8
	// tcpDialTurn is when the next connection is opened although this one is not complete, because a peer that does not
	// answer must not hold up others.
	tcpDialTurn = 500 * time.Millisecond
)

// take blocks until the caller may connect. The caller calls end afterwards.
func (q tcpTurns) take(ctx context.Context) (end func(), err error) {
	select {
	case q <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave := sync.OnceFunc(func() { <-q })
	timer := time.AfterFunc(tcpDialTurn, leave)
	return func() { timer.Stop(); leave() }, nil
}
