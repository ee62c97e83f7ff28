package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/inherit"
	"github.com/allcast/allcast/internal/oslimit"
)

// maxRefused limits the processes with a wrong key of which a rank tells rank 0.
const maxRefused = 8

// arrival is a rank that has proved the job's key and said hello.
type arrival struct {
	conn    net.Conn // nil if another rank relays
	addr    string
	hello   hello
	secure  bool  // the rank wants to seal
	offer   entry // where the rank listens to pass results on; zero if it does not
	refused bool  // a process whose key is wrong; only addr is set
}

// gate accepts and authenticates connections.
type gate struct {
	listeners []net.Listener
	note      string // hint for the error if ranks are missing
	id        incarnation
	cfg       *Config
	arrivals  chan arrival
	exhausted chan error // gets the limit of this process that keeps ranks out
	done      chan struct{}
	wg        sync.WaitGroup

	mu        sync.Mutex
	pending   pending
	closed    bool
	strangers int
	wrongKeys int
	lastWrong string
}

func newGate(ctx context.Context, cfg *Config) (*gate, error) {
	listeners, note, err := open(ctx, *cfg)
	if err != nil {
		return nil, err
	}
	g := prepareGate(cfg, listeners)
	g.note = note
	if cfg.Store != nil {
		addr := g.listeners[0].Addr().(*net.TCPAddr).AddrPort()
		e := newEntry(netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
		g.id = e.id
		if err := publish(ctx, cfg, e); err != nil {
			closeAll(g.listeners)
			return nil, err
		}
	}
	g.open()
	return g, nil
}

func prepareGate(cfg *Config, listeners []net.Listener) *gate {
	return &gate{
		cfg: cfg, listeners: listeners, arrivals: make(chan arrival), exhausted: make(chan error, 1),
		done: make(chan struct{}),
	}
}

// open starts to accept.
func (g *gate) open() {
	for _, l := range g.listeners {
		g.wg.Go(func() { g.accept(l) })
	}
}

// acceptPatience is how long a gate tries to accept while this process lacks something, such as descriptors. Strangers
// may hold them, or something else may give some back.
const acceptPatience = 2 * time.Second

func (g *gate) accept(l net.Listener) {
	var full time.Time // since when nothing can be accepted
	for {
		conn, err := l.Accept()
		if err == nil {
			full = time.Time{}
			inherit.Conn(conn)
			conn = g.cfg.meter.wrap(conn)
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			// The peer left while it was in the backlog, or this process is out of descriptors.
			limit := oslimit.Exhausted(err)
			switch {
			case limit == nil:
				full = time.Time{}
			case full.IsZero():
				full = time.Now()
			case time.Since(full) <= acceptPatience:
				g.relieve()
			default:
				select {
				case g.exhausted <- limit:
				default:
				}
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-g.done:
				return
			}
		case !g.enter(conn):
			_ = conn.Close()
			return
		default:
			g.wg.Go(func() { g.receive(conn) })
		}
	}
}

// enter makes a connection pending; it returns false once the gate is closed.
func (g *gate) enter(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if len(g.pending.all) >= maxStrangers+g.cfg.Size {
		g.evict()
	}
	g.pending.add(conn)
	return true
}

// evict closes a pending connection. The caller holds mu.
func (g *gate) evict() {
	if conn := g.pending.least(); conn != nil {
		g.strangers++
		_ = conn.Close()
		g.pending.remove(conn)
	}
}

// relieve closes the pending connection that is furthest from a hello, unless all have proved the key.
func (g *gate) relieve() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if conn := g.pending.least(); conn != nil && !g.pending.all[conn].proved {
		g.evict()
	}
}

// leave ends that a connection is pending; it returns false if the gate has evicted it.
func (g *gate) leave(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending.remove(conn)
}

// progress records that a pending connection has brought bytes, or has proved the job's key.
func (g *gate) progress(conn net.Conn, proved bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending.progress(conn, proved)
}

func (g *gate) receive(conn net.Conn) {
	a, err := g.greet(conn)
	if !g.leave(conn) {
		return
	}
	if err != nil {
		_ = conn.Close()
		if !g.count(err, conn.RemoteAddr().String()) || g.cfg.Rank == 0 {
			return
		}
		a = arrival{addr: conn.RemoteAddr().String(), refused: true}
	}
	select {
	case g.arrivals <- a:
	case <-g.done:
		_ = conn.Close()
	}
}

func (g *gate) greet(conn net.Conn) (arrival, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return arrival{}, err
	}
	l, err := authParent(&pendingConn{conn, g}, g.cfg.Key, g.cfg.Secure, g.id)
	if err != nil {
		return arrival{}, err
	}
	g.progress(conn, true)
	conn = l.wrap(conn)
	f, err := readFrame(conn, helloLimits)
	if err != nil {
		return arrival{}, err
	}
	h, err := decodeHello(f.payload)
	if err != nil {
		return arrival{}, err
	}
	a := arrival{conn: conn, addr: conn.RemoteAddr().String(), hello: h, secure: l.secure}
	if g.offers(&h) {
		if a.offer, err = readOffer(conn); err != nil {
			return arrival{}, err
		}
	}
	return a, conn.SetDeadline(time.Time{})
}

// offers reports whether an offer follows the hello. A process of another protocol or job may send none.
func (g *gate) offers(h *hello) bool {
	return g.cfg.Rank == 0 && h.protocol == g.cfg.Protocol && h.size == g.cfg.Size && g.cfg.passesOn(h.rank)
}

// count notes a connection that did not become an arrival. It reports whether rank 0 should know.
func (g *gate) count(err error, from string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !errors.Is(err, ErrKey) {
		g.strangers++
		return false
	}
	g.wrongKeys++
	g.lastWrong = from
	return g.wrongKeys <= maxRefused
}

// report describes all that may explain missing ranks.
func (g *gate) report() (text string, keys bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wrongKeys > 0 {
		text += fmt.Sprintf("; connections refused for a wrong or missing key: %d, the last from %v",
			g.wrongKeys, g.lastWrong)
	}
	if g.strangers > 0 {
		text += fmt.Sprintf("; other connections that were not from ranks: %d", g.strangers)
	}
	if g.note != "" {
		text += "; " + g.note
	}
	return text, g.wrongKeys > 0
}

// close is idempotent. A nil gate has nothing to close.
func (g *gate) close() {
	if g == nil || g.closed {
		return
	}
	close(g.done)
	closeAll(g.listeners)
	g.mu.Lock()
	g.closed = true
	for len(g.pending.all) > 0 {
		g.evict()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

func readOffer(conn net.Conn) (entry, error) {
	f, err := readFrame(conn, limits{frameOffer: maxEntry})
	if err != nil {
		return entry{}, err
	}
	return parseEntry(f.payload)
}
