package aggregate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/inc"
)

// serve handles one connection until it ends.
func (s *Server) serve(conn net.Conn) {
	g, err := s.greet(conn)
	switch {
	case errors.Is(err, errEvicted):
		return // counted already
	case errors.Is(err, errFull):
		s.dismiss(g.conn, fmt.Sprintf("aggregator %v has %d children already, which is its limit: raise its limit of open "+
			"files (up to %d children)", s.Addr(), s.limits.children, maxChildren))
		return
	case err != nil:
		s.count(err, conn.RemoteAddr())
		return
	}
	c, err := s.admit(g.conn, g.attach)
	if err != nil {
		s.refuse(g.attach, err, conn.RemoteAddr())
		why := fmt.Sprintf("aggregator %s refuses the job: %v", s.nameIn(g.attach), err)
		g.attach = nil // it may be large
		g.done()
		s.dismiss(g.conn, why)
		return
	}
	g.attach = nil
	g.done()
	s.conns.attached.Add(1)
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		c.write(s.cfg.Timing.Expiry)
	}()
	why := c.read(s.cfg.Timing.Expiry)
	s.leave(c, why)
	_ = conn.Close()
	close(c.done)
	<-writer
}

// dismiss tells a child why it cannot attach.
func (s *Server) dismiss(sealed net.Conn, why string) {
	if writeMessage(sealed, &message{Kind: msgDetach, Why: clip(why)}, detachTime) == nil {
		s.drain(sealed)
	}
}

// nameIn is this aggregator's address in a job's tree, or else its own.
func (s *Server) nameIn(a *attach) string {
	if tree, err := inc.ParseTree(a.Tree, a.Size); err == nil && a.Node >= 0 && a.Node < len(tree.Nodes) {
		return tree.Nodes[a.Node].Addr
	}
	return s.Addr().String()
}

// drain waits until the peer has read the last message and closed: an early close would reset the connection, and the
// reason would be lost.
func (s *Server) drain(conn net.Conn) {
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetReadDeadline(time.Now().Add(detachTime))
	for range 64 {
		if _, err := readMessage(conn, maxSmall); err != nil {
			return
		}
	}
}

// A child is an attached rank or aggregator.
type child struct {
	job    *job
	at     int // position
	conn   net.Conn
	window uint32 // largest window that it can use
	ranks  []member
	done   chan struct{}

	sending sync.Mutex    // comes before mu
	notify  chan struct{} // has one element if write should send the status

	mu     sync.Mutex
	status status
	told   status // last one that was sent
}

// tell sends a status, or only the latest of several. One that is not urgent waits for the next heartbeat: while many
// children come or go, the others need not know of each.
func (c *child) tell(s status, urgent bool) {
	c.mu.Lock()
	c.status = s
	c.mu.Unlock()
	if !urgent {
		return
	}
	select {
	case c.notify <- struct{}{}:
	default:
	}
}

// send sends the status if the child does not know it.
func (c *child) send(within time.Duration) error {
	c.sending.Lock() // so that an older status does not follow a newer one
	defer c.sending.Unlock()
	c.mu.Lock()
	s := c.status
	known := s == c.told
	c.told = s
	c.mu.Unlock()
	if known {
		return nil
	}
	return writeMessage(c.conn, &message{Kind: msgStatus, Status: &s}, within)
}

// write sends urgent statuses until done is closed. If that fails, it ends the connection.
func (c *child) write(within time.Duration) {
	for {
		select {
		case <-c.done:
			return
		case <-c.notify:
		}
		if err := c.send(within); err != nil {
			_ = c.conn.Close()
			return
		}
	}
}

// read answers heartbeats until the connection ends, and returns why it ended; an empty reason means that the child
// has detached without one.
func (c *child) read(expiry time.Duration) error {
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(expiry)); err != nil {
			return err
		}
		m, err := readMessage(c.conn, maxSmall)
		if err != nil {
			return err
		}
		switch m.Kind {
		case msgPing:
			if err := cmp.Or(c.send(expiry), writeMessage(c.conn, &message{Kind: msgPong}, expiry)); err != nil {
				return err
			}
		case msgDetach:
			return &detachedError{m.Why}
		default:
			return fmt.Errorf("%w: unknown kind", errMessage)
		}
	}
}

// detachedError is a child's farewell.
type detachedError struct{ why string }

func (e *detachedError) Error() string { return e.why }

// checkRanks reports whether the ranks of an attach message are those below a child, each with an address that
// this aggregator may send to. Everybody with the site key can attach as an aggregator and report any address, so the
// check keeps sums away from groups and from this host's own services.
func checkRanks(tree *inc.Tree, a *attach, from netip.Addr, sock *socket) error {
	below := ranksBelow(tree, tree.Nodes[a.Node].Children[a.Child])
	if len(below) != len(a.Ranks) {
		return fmt.Errorf("addresses of %d ranks: the tree has %d there", len(a.Ranks), len(below))
	}
	for _, m := range a.Ranks {
		if !below[m.Rank] {
			return fmt.Errorf("rank %d attaches in the place of another child", m.Rank)
		}
		delete(below, m.Rank) // each once
		to := plain(m.Addr)
		switch {
		case !isUnicast(to.Addr()) || to.Port() == 0:
			return fmt.Errorf("rank %d has the data address %v, which cannot be used", m.Rank, m.Addr)
		case to.Addr().IsLoopback() && !from.IsLoopback():
			return fmt.Errorf("rank %d has the data address %v of another machine's loopback interface: choose an "+
				"interface that the aggregators reach (ALLCAST_IFNAME)", m.Rank, m.Addr)
		case !sock.reaches(to.Addr()):
			return fmt.Errorf("rank %d has the data address %v, but this aggregator sends from %v: use the same version "+
				"of IP, or --listen :PORT for both", m.Rank, m.Addr, sock.local.Addr())
		}
	}
	if tree.Nodes[a.Node].Children[a.Child].Node >= 0 {
		return nil // an aggregator, whose ranks have addresses of their own
	}
	if ip := a.Ranks[0].Addr.Addr().Unmap(); ip != from {
		return fmt.Errorf("rank %d has the data address %v, but connects from %v: they must be the same",
			a.Ranks[0].Rank, ip, from)
	}
	return nil
}

// isUnicast reports whether an address may be that of one host. The broadcast address of a subnet does not show; the
// socket refuses it.
func isUnicast(a netip.Addr) bool {
	if a.Is4() && (a.As4()[0] == 0 || a == netip.AddrFrom4([4]byte{255, 255, 255, 255})) {
		return false
	}
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLinkLocalUnicast()
}

// ranksBelow returns the ranks of a subtree.
func ranksBelow(tree *inc.Tree, c inc.Child) map[int]bool {
	below := map[int]bool{}
	var walk func(c inc.Child)
	walk = func(c inc.Child) {
		if c.Node < 0 {
			below[c.Rank] = true
			return
		}
		for _, k := range tree.Nodes[c.Node].Children {
			walk(k)
		}
	}
	walk(c)
	return below
}
