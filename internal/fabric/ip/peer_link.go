package ip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/inherit"
)

// link dials the peer, hands the connection to write, and watches it. The peer sends nothing on it
// but a goodbye, so the end of the peer shows at once, even if this rank has nothing to send.
func (p *peer) link(ctx context.Context) {
	c, link, err := p.dial(ctx)
	if err != nil {
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

// dial retries until the timeout, since the peer may be slow to start.
func (p *peer) dial(ctx context.Context) (*net.TCPConn, authLink, error) {
	const first, limit = 5 * time.Millisecond, 200 * time.Millisecond
	begin := time.Now()
	ctx, cancel := context.WithDeadline(ctx, begin.Add(p.t.cfg.Timeout))
	defer cancel()
	for pause := first; ; pause = min(2*pause, limit) {
		c, link, err := p.try(ctx)
		retry := true
		switch {
		case err == nil:
			return c, link, nil
		case errors.Is(err, errAuthLeft):
			return nil, link, fabric.ErrGoodbye
		case errors.Is(err, errAuth):
			p.t.log.Warn("connect", "peer", p.rank, "err", err)
			retry = false
		case errors.Is(err, syscall.ECONNREFUSED):
			retry = time.Since(begin) <= p.t.cfg.limits.refused && p.state() == session.Open
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

func (p *peer) try(ctx context.Context) (*net.TCPConn, authLink, error) {
	t := p.t
	d := net.Dialer{KeepAlive: -1} // see tune
	d.SetMultipathTCP(false)
	if t.cfg.Local.IsValid() {
		d.LocalAddr = &net.TCPAddr{IP: t.cfg.Local.AsSlice(), Zone: t.cfg.Local.Zone()}
	}
	ctx, cancel := context.WithTimeout(ctx, t.handshake())
	defer cancel()
	nc, err := d.DialContext(ctx, "tcp", t.cfg.Addrs[p.rank])
	if err != nil {
		return nil, authLink{}, err
	}
	inherit.Conn(nc)
	c := nc.(*net.TCPConn)
	t.tune(c)
	// A deadline in the past ends the handshake when the context does.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	link, err := t.self.dial(c, p.rank)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, authLink{}, err
	}
	return c, link, nil
}
