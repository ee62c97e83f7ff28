package rendezvous

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// maxPending limits connections that have not said hello. Another one evicts the oldest. Silent connections
// therefore cannot keep ranks out, and an evicted rank dials again.
const maxPending = 256

// arrival is a connection of a rank that has proved the job's key and said hello.
type arrival struct {
	conn   net.Conn
	hello  hello
	secure bool // the rank wants to seal
}

// gate accepts and authenticates connections on rank 0.
type gate struct {
	doors    doors
	key      []byte
	secure   bool
	arrivals chan arrival
	done     chan struct{}
	wg       sync.WaitGroup

	mu        sync.Mutex
	pending   list.List // of net.Conn, oldest first
	closed    bool
	strangers int
	wrongKeys int
	lastWrong net.Addr
}

func newGate(d doors, cfg *Config) *gate {
	g := &gate{doors: d, key: cfg.Key, secure: cfg.Secure, arrivals: make(chan arrival), done: make(chan struct{})}
	for _, l := range d.listeners {
		g.wg.Go(func() { g.accept(l) })
	}
	return g
}

func (g *gate) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// The process is out of descriptors, or the peer left while in the backlog.
			g.evict()
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-g.done:
				return
			}
		}
		e := g.enter(conn)
		if e == nil {
			_ = conn.Close()
			return
		}
		g.wg.Go(func() { g.receive(e, conn) })
	}
}

func (g *gate) enter(conn net.Conn) *list.Element {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	if g.pending.Len() >= maxPending {
		g.evictLocked()
	}
	return g.pending.PushBack(conn)
}

func (g *gate) evict() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.evictLocked()
}

func (g *gate) evictLocked() {
	if e := g.pending.Front(); e != nil {
		g.strangers++
		_ = g.pending.Remove(e).(net.Conn).Close()
		e.Value = nil
	}
}

// leave removes a connection from the list; it returns false if the gate has evicted it.
func (g *gate) leave(e *list.Element) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.Value == nil {
		return false
	}
	g.pending.Remove(e)
	return true
}

func (g *gate) receive(e *list.Element, conn net.Conn) {
	a, err := g.greet(conn)
	if !g.leave(e) {
		return
	}
	if err != nil {
		g.count(err, conn.RemoteAddr())
		_ = conn.Close()
		return
	}
	select {
	case g.arrivals <- a:
	case <-g.done:
		_ = conn.Close()
	}
}

func (g *gate) greet(conn net.Conn) (arrival, error) {
	tune(conn)
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return arrival{}, err
	}
	l, err := authRoot(conn, g.key, g.secure)
	if err != nil {
		return arrival{}, err
	}
	conn = l.wrap(conn)
	f, err := readFrame(conn, helloLimits())
	if err != nil {
		return arrival{}, err
	}
	h, err := decodeHello(f.payload)
	if err != nil {
		return arrival{}, err
	}
	return arrival{conn, h, l.secure}, conn.SetDeadline(time.Time{})
}

func (g *gate) count(err error, from net.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(err, ErrKey) {
		g.wrongKeys++
		g.lastWrong = from
		return
	}
	g.strangers++
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
	if g.doors.note != "" {
		text += "; " + g.doors.note
	}
	return text, g.wrongKeys > 0
}

func (g *gate) close() {
	close(g.done)
	g.doors.close()
	g.mu.Lock()
	g.closed = true
	for g.pending.Len() > 0 {
		g.evictLocked()
	}
	g.mu.Unlock()
	g.wg.Wait()
}
