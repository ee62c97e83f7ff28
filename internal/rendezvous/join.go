package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

const (
	defaultTimeout = 60 * time.Second
	defaultGrace   = 2 * time.Second // to say farewell to peers that may not listen
	settleTime     = 250 * time.Millisecond
	handshakeTime  = 10 * time.Second // from the connection to the hello
)

// Config is what Join needs to know.
type Config struct {
	Rank, Size int
	Addr       string        // host:port of rank 0
	Key        []byte        // the job's; nil: unauthenticated
	Secure     bool          // seal what is said after the proofs, on all ranks or none; needs a key
	Timeout    time.Duration // for the whole of Join; 0: 60 s
	Version    string        // of software and protocol; must be equal on all ranks
	Program    string        // what runs; where two ranks both say, they must say the same

	// Listener is where rank 0 waits, if it listens already; Addr must lead to
	// it. Join closes it.
	Listener net.Listener

	grace   time.Duration
	expired <-chan time.Time // in place of the timer of a rank that waits for others
	seen    func(rank int)   // called by rank 0 for every process that came
}

func (cfg *Config) check() error {
	switch {
	case cfg.Size < 1 || cfg.Size > MaxSize:
		return fmt.Errorf("rendezvous: world size %d is not in 1..%d", cfg.Size, MaxSize)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return fmt.Errorf("rendezvous: rank %d is not in 0..%d", cfg.Rank, cfg.Size-1)
	case len(cfg.Version) > maxString || len(cfg.Program) > maxString:
		return fmt.Errorf("rendezvous: version or program longer than %d bytes", maxString)
	case cfg.Timeout < 0:
		return fmt.Errorf("rendezvous: negative timeout %v", cfg.Timeout)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.grace == 0 {
		cfg.grace = defaultGrace
	}
	if len(cfg.Key) == 0 {
		cfg.Key = nil
	}
	if cfg.Secure && cfg.Key == nil {
		return fmt.Errorf("rendezvous: %w: nothing can be sealed without one; set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks", ErrKey)
	}
	if cfg.Size == 1 {
		return nil
	}
	_, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return fmt.Errorf("rendezvous: address of rank 0 %q is not host:port: %w", cfg.Addr, err)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("rendezvous: address of rank 0 %q has no port in 1..65535", cfg.Addr)
	}
	return nil
}

// Join brings all ranks together. It returns when all of them came, or, on every
// rank that came, with the reason why there is no job. A world of one rank uses
// no network.
func Join(ctx context.Context, cfg Config) (*Session, error) {
	err := cfg.check()
	if err == nil {
		err = context.Cause(ctx)
	}
	if cfg.Listener != nil && (err != nil || cfg.Rank != 0 || cfg.Size == 1) {
		_ = cfg.Listener.Close()
	}
	switch {
	case err != nil:
		return nil, err
	case cfg.Size == 1:
		return newSession(solo{}, newSeed()), nil
	case cfg.Rank == 0:
		return joinRoot(ctx, cfg)
	}
	return joinRank(ctx, cfg)
}

// keepAlive finds a peer whose machine is gone within some 15 s. A process that
// is gone is known at once: its kernel closes the connection.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}

func tune(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(keepAlive) // a connection without is still one
	}
}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

// writeUntil writes all of b, unless ctx ends first. It leaves no deadline behind.
func writeUntil(ctx context.Context, c net.Conn, b []byte) error {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
		close(fired)
	})
	_, err := c.Write(b)
	if !stop() {
		<-fired
		_ = c.SetWriteDeadline(time.Time{})
	}
	return err
}

// reasonOf tells the others why a context ended this rank's waiting.
func reasonOf(ctx context.Context) reason {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return leftDeadline
	}
	return leftCanceled
}

// forPeople rounds a time that was waited.
func forPeople(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Millisecond)
}
