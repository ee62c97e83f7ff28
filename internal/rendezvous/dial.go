package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/oslimit"
)

const (
	dialTime  = 5 * time.Second // limit of one attempt; the next may resolve the name differently
	firstWait = 10 * time.Millisecond
	longWait  = 500 * time.Millisecond
)

// seeker looks for this rank's parent until it finds it.
type seeker struct {
	cfg    *Config
	parent int
	cancel context.CancelFunc
	found  chan finding // gets one finding

	limit   time.Duration // of the next attempt to connect to an entry of the store
	failed  int           // consecutive errors of the store
	unnamed int           // consecutive failures to resolve the parent's name

	mu   sync.Mutex
	last error // of the last attempt

	// offer returns what follows the hello; nil for nothing. Its argument is this rank's address on the connection.
	offer func(local netip.Addr) []byte
}

// finding is a connection to the parent, or the reason why there is none.
type finding struct {
	leaf *leaf
	err  error
}

// seek starts a seeker. It waits before the first attempt.
func seek(ctx context.Context, cfg *Config, wait time.Duration, offer func(netip.Addr) []byte) *seeker {
	ctx, cancel := context.WithCancel(ctx)
	s := &seeker{
		cfg: cfg, parent: cfg.tree.parent(cfg.Rank), cancel: cancel, found: make(chan finding, 1), limit: time.Second,
		offer: offer,
	}
	go func() {
		defer cancel()
		s.found <- s.run(ctx, wait)
	}()
	return s
}

// stop ends the search. It returns the finding, unless the caller has read it.
func (s *seeker) stop() finding {
	s.cancel()
	return <-s.found
}

// run ends with a connection, an error that will not go away, or, when ctx ends, with the most informative error
// so far.
func (s *seeker) run(ctx context.Context, wait time.Duration) finding {
	var last error
	for {
		select {
		case <-time.After(wait/2 + rand.N(wait+1)): // jitter keeps ranks that started together from dialing in step
		case <-ctx.Done():
			return finding{err: last}
		}
		wait = min(max(2*wait, firstWait), longWait)
		l, err := s.attempt(ctx)
		switch {
		case err == nil:
			return finding{leaf: l}
		case errors.Is(err, ErrKey), isLimit(err), s.failed >= maxStoreErrors, s.nameless(err):
			return finding{err: err}
		case last == nil || ctx.Err() == nil:
			last = err
			s.mu.Lock()
			s.last = err
			s.mu.Unlock()
		}
	}
}

// isLimit reports whether this process, and not the parent, is the reason of an error.
func isLimit(err error) bool {
	_, limit := errors.AsType[*oslimit.Error](err)
	return limit
}

// lastError returns the error of the last attempt, while the search goes on.
func (s *seeker) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// maxUnnamed limits consecutive failures of name servers. A name that does not exist needs only one.
const maxUnnamed = 3

// nameless reports whether the name of the parent's machine cannot be resolved, and waiting will not help.
func (s *seeker) nameless(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	if !ok || s.cfg.LateNames {
		s.unnamed = 0
		return false
	}
	s.unnamed++
	return dns.IsNotFound || s.unnamed >= maxUnnamed
}

// attempt connects to the parent and says hello.
func (s *seeker) attempt(ctx context.Context) (*leaf, error) {
	addr, id := s.cfg.Addr, incarnation{}
	if s.cfg.Store != nil {
		e, err := s.lookup(ctx)
		if err != nil {
			return nil, err
		}
		addr, id = e.addr.String(), e.id
		// The entry may be of a dead process, and the next attempt reads a newer one. A process that is only
		// slow gets more time then.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.limit, fmt.Errorf("no answer from %s in %v", addr, s.limit))
		defer cancel()
		s.limit = min(2*s.limit, handshakeTime)
	}
	l, err := s.dial(ctx, addr, id)
	if err != nil && s.cfg.Store != nil {
		return nil, fmt.Errorf("at %s, the address in the store: %w", addr, err)
	}
	return l, err
}

// lookup reads the parent's entry; it waits until there is one.
func (s *seeker) lookup(ctx context.Context) (entry, error) {
	key := storeKey(s.cfg.Attempt, s.parent)
	value, err := s.cfg.Store.Get(ctx, key)
	switch {
	case err == nil:
		s.failed = 0
		return decodeEntry(value)
	case ctx.Err() != nil:
		return entry{}, fmt.Errorf("its entry %q is not in the store", key)
	}
	s.failed++
	return entry{}, fmt.Errorf("cannot get %q from the store: %w", key, err)
}

func (s *seeker) dial(ctx context.Context, addr string, id incarnation) (*leaf, error) {
	d := net.Dialer{Timeout: dialTime, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		if full := oslimit.Exhausted(err); full != nil {
			return nil, full
		}
		return nil, err
	}
	inherit.Conn(conn)
	conn = s.cfg.meter.wrap(conn)
	sealed, differs, err := s.greet(ctx, conn, id)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newLeaf(s.cfg, s.parent, sealed, differs), nil
}

// greet returns the connection, sealed if both sides want that, and whether only one side does.
func (s *seeker) greet(ctx context.Context, conn net.Conn, id incarnation) (net.Conn, bool, error) {
	// TCP connects a socket to itself when it dials its own port.
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		return nil, false, errors.New("no process listens there yet")
	}
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, false, err
	}
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Unix(1, 0))
		close(fired)
	})
	defer stop()
	l, err := authChild(conn, s.cfg.Key, s.cfg.Secure, s.parent, id)
	if err != nil {
		if errors.Is(err, errStranger) {
			err = fmt.Errorf("the process at %v is not rank %d of a job", conn.RemoteAddr(), s.parent)
		}
		return nil, false, err
	}
	sealed := l.wrap(conn)
	h := hello{
		rank: s.cfg.Rank, size: s.cfg.Size, protocol: s.cfg.Protocol, version: s.cfg.Version, program: s.cfg.Program,
	}
	first := h.frame()
	if s.offer != nil {
		first = append(first, s.offer(addrOf(conn.LocalAddr()))...)
	}
	if _, err := sealed.Write(first); err != nil {
		return nil, false, err
	}
	if !stop() {
		<-fired // the parent has the hello, so the connection counts
	}
	return sealed, l.secure != s.cfg.Secure, conn.SetDeadline(time.Time{})
}
