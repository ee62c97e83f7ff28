package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

const (
	dialTime  = 5 * time.Second // limit of one attempt; the next may resolve the name differently
	firstWait = 10 * time.Millisecond
	longWait  = 500 * time.Millisecond
)

// joinRank tries to reach rank 0 until it does, and then waits for the verdict.
func joinRank(ctx context.Context, cfg Config) (*Session, error) {
	start := time.Now()
	seek, cancel := context.WithTimeout(ctx, cfg.JoinTimeout)
	defer cancel()

	var last error // most informative error of an attempt so far
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		l, err := dialRoot(seek, cfg)
		switch {
		case err == nil:
			s, again, err := l.await(ctx, cfg)
			if err == nil || !again {
				return s, err
			}
			last = err
		case errors.Is(err, ErrKey):
			return nil, fmt.Errorf("rendezvous: rank %d at rank 0's address %s: %w", cfg.Rank, cfg.Addr, err)
		case last == nil || seek.Err() == nil:
			last = err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)): // jitter keeps ranks that started together from dialing in step
		case <-seek.Done():
			since := start.Format("15:04:05")
			if ctx.Err() != nil {
				return nil, fmt.Errorf("rendezvous: rank %d, trying to reach rank 0 at %s since %s: %w (last: %w)",
					cfg.Rank, cfg.Addr, since, context.Cause(ctx), last)
			}
			e := lostRoot(last, "rank %d could not reach rank 0 at %s, tried since %s for %v: %v",
				cfg.Rank, cfg.Addr, since, forPeople(cfg.JoinTimeout), last)
			e.causes = append(e.causes, ErrTimeout)
			return nil, e
		}
	}
}

// dialRoot connects to rank 0 and says hello.
func dialRoot(ctx context.Context, cfg Config) (*leaf, error) {
	d := net.Dialer{Timeout: dialTime, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	sealed, differs, err := greetRoot(ctx, cfg, conn)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newLeaf(cfg, sealed, differs), nil
}

// greetRoot returns the connection, sealed if both sides want that, and whether only one side does.
func greetRoot(ctx context.Context, cfg Config, conn net.Conn) (net.Conn, bool, error) {
	// TCP connects a socket to itself when it dials its own port.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		return nil, false, errors.New("no process listens there yet")
	}
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	l, err := authRank(conn, cfg.Key, cfg.Secure)
	if err != nil {
		if errors.Is(err, errStranger) {
			err = fmt.Errorf("the process at %v is not rank 0 of a job", conn.RemoteAddr())
		}
		return nil, false, err
	}
	sealed := l.wrap(conn)
	h := hello{rank: cfg.Rank, size: cfg.Size, version: cfg.Version, program: cfg.Program}
	if _, err := sealed.Write(h.frame()); err != nil {
		return nil, false, err
	}
	if !stop() {
		return nil, false, context.Cause(ctx) // the callback sets a deadline in the past
	}
	return sealed, l.secure != cfg.Secure, conn.SetDeadline(time.Time{})
}

// await waits for rank 0's verdict. again means that the connection ended without one.
func (l *leaf) await(ctx context.Context, cfg Config) (s *Session, again bool, err error) {
	select {
	case f := <-l.frames:
		// A rank that seals accepts no seed in the clear.
		if f.typ != frameWelcome || len(f.payload) != seedSize || l.differs {
			l.close()
			return nil, false, lostRoot(ErrProtocol, "rank 0 at %s: %v: no welcome", cfg.Addr, ErrProtocol)
		}
		return newSession(l, [seedSize]byte(f.payload)), false, nil
	case <-l.dead:
		return nil, !l.told, l.err
	case <-ctx.Done():
		l.leave(leaveFrame(reasonOf(ctx)))
		return nil, false, fmt.Errorf("rendezvous: rank %d, waiting for all ranks at rank 0's address %s: %w",
			cfg.Rank, cfg.Addr, context.Cause(ctx))
	case <-cfg.expired:
	}
	// Rank 0 knows which ranks are missing, and now tells all.
	_ = l.conn.SetWriteDeadline(time.Now().Add(cfg.grace))
	_, _ = l.conn.Write(leaveFrame(leftDeadline))
	select {
	case <-l.dead:
		if l.told {
			return nil, false, l.err
		}
	case <-l.frames: // all ranks came at this moment, but rank 0 knows that this one leaves
	case <-ctx.Done():
	case <-time.After(cfg.grace):
	}
	l.leave(nil)
	return nil, false, fmt.Errorf("rendezvous: rank %d reached rank 0 at %s, but not all ranks came in %v: %w",
		cfg.Rank, cfg.Addr, forPeople(cfg.JoinTimeout), ErrTimeout)
}
