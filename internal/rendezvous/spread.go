package rendezvous

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// In a star, rank 0 has a connection to each rank. It gets one blob per rank, but it does not send each rank the
// blobs of all: its bytes would grow with the square of the number of ranks. Results go down the tree Config.results
// instead, and each rank passes them on to its children there.
//
// A rank that has such children, other than rank 0, listens and tells rank 0 where (its offer). Once all ranks have
// come, rank 0 tells each rank where its parent listens. The rank connects to its parent before it sends its first
// blob, and the parent confirms that. When a result arrives at a parent, all ranks have sent their blobs, so the
// parent has all of its children. A rank that does not reach its parent tells rank 0 before its first blob, and gets
// the results from rank 0.
//
// All other frames use the star. Rank 0 therefore notices the loss of any rank at once, and tells all.

// passesOn reports whether a rank passes on results to ranks that rank 0 is connected to.
func (c *Config) passesOn(rank int) bool {
	return c.Store == nil && rank > 0 && c.results.hasChildren(rank, c.Size)
}

// spread admits the children that get results from this rank.
type spread struct {
	gate  *gate
	hub   *hub
	entry entry
	ended chan struct{} // closed when no more children are admitted
	once  sync.Once     // of close
}

// offer starts to listen at an address, unless this rank listens already. It returns the frame that tells rank 0. If
// this rank cannot listen, the frame says so, and rank 0 takes over its children.
func (g *gathering) offer(local netip.Addr) []byte {
	if g.spread == nil {
		g.spread = newSpread(&g.cfg, g.hub, local)
	}
	var e entry
	if g.spread != nil {
		e = g.spread.entry
	}
	if g.cfg.offered != nil {
		g.cfg.offered(&e)
	}
	return offerFrame(e)
}

func newSpread(cfg *Config, h *hub, local netip.Addr) *spread {
	l, err := listen(context.Background(), *cfg, netip.AddrPortFrom(local, 0).String())
	if err != nil {
		return nil
	}
	addr, _ := l.Addr().(*net.TCPAddr)
	e := newEntry(netip.AddrPortFrom(local, uint16(addr.Port)))
	g := prepareGate(cfg, []net.Listener{l})
	g.id = e.id
	s := &spread{gate: g, hub: h, entry: e, ended: make(chan struct{})}
	g.open()
	go s.admit()
	return s
}

// admit takes children until the gate closes.
func (s *spread) admit() {
	defer close(s.ended)
	for {
		select {
		case a := <-s.gate.arrivals:
			s.take(a)
		case err := <-s.gate.exhausted: // rank 0 passes results on to the children that cannot come
			cfg := s.gate.cfg
			cfg.Logger.Warn("joining: cannot accept connections", "rank", cfg.Rank, "err", err)
		case <-s.gate.done:
			return
		}
	}
}

// take confirms a child and adds it to the hub. A process that is no child of this rank is turned away.
func (s *spread) take(a arrival) {
	cfg, rank := s.gate.cfg, a.hello.rank
	if a.refused {
		return
	}
	if rank >= cfg.Size || rank == 0 || cfg.results.parent(rank) != cfg.Rank || a.secure != cfg.Secure {
		_ = a.conn.Close()
		return
	}
	if !s.hub.adopt(a) {
		_ = a.conn.Close()
	}
}

// close ends the admission of children; it is idempotent. A nil spread has nothing to close.
func (s *spread) close() {
	if s != nil {
		s.once.Do(func() {
			s.gate.close()
			<-s.ended
		})
	}
}

// feed connects this rank to its parent in the tree of results. If that fails, it asks rank 0 for the results, and
// returns the connection to rank 0.
func (g *gathering) feed(ctx context.Context, parent entry) *leaf {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	s := seeker{cfg: &g.cfg, parent: g.cfg.results.parent(g.cfg.Rank)}
	l, err := s.dial(ctx, parent.addr.String(), parent.id)
	if err == nil {
		select {
		case f := <-l.frames:
			if f.typ == frameTaken && !l.differs {
				return l
			}
		case <-l.dead:
		case <-g.up.dead: // the first exchange reports it
		case <-ctx.Done():
		}
		l.leave(nil)
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = g.up.send(limited, newFrame(frameDirect, 0)) // the first exchange reports an error
	return g.up
}
