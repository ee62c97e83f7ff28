package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// gathering is the state of Join on a rank other than 0. The rank looks for its parent, and tells it which ranks
// have come below. If the parent goes, it may come back as another process, so the rank looks again and repeats
// what it told.
type gathering struct {
	cfg    Config
	hub    *hub
	gate   *gate   // nil in a star
	spread *spread // nil if this rank passes no results on to ranks that rank 0 sees itself
	seeker *seeker
	up     *leaf         // nil while the rank looks for its parent
	wait   time.Duration // before the next search
	start  time.Time
	last   error // result of a search that ended
	known  []notice
}

// notice is a relayed frame about a rank below, which a new parent has to know.
type notice struct {
	child *peer // nil for a process that this rank refused
	rank  int
	frame []byte
}

func joinBranch(ctx context.Context, cfg Config) (*Session, error) {
	g := &gathering{cfg: cfg, hub: newHub(cfg), start: time.Now()}
	if cfg.Store != nil {
		var err error
		if g.gate, err = newGate(ctx, &g.cfg); err != nil {
			return nil, err
		}
	}
	defer g.gate.close()
	g.seeker = g.seek(ctx)
	s, err := g.gather(ctx)
	if err != nil {
		g.spread.close()
	}
	return s, err
}

// seek starts to look for the parent.
func (g *gathering) seek(ctx context.Context) *seeker {
	if g.cfg.passesOn(g.cfg.Rank) {
		return seek(ctx, &g.cfg, g.wait, g.offer)
	}
	return seek(ctx, &g.cfg, g.wait, nil)
}

// gather waits until rank 0 welcomes all ranks, or says why not.
func (g *gathering) gather(ctx context.Context) (*Session, error) {
	var arrivals chan arrival
	var exhausted chan error
	var events chan event
	if g.gate != nil {
		arrivals, exhausted, events = g.gate.arrivals, g.gate.exhausted, g.hub.events
	}
	for {
		var v *verdict
		var found chan finding
		var frames chan frame
		var dead chan struct{}
		if g.up != nil {
			frames, dead = g.up.frames, g.up.dead
		} else if g.seeker != nil {
			found = g.seeker.found
		}
		select {
		case a := <-arrivals:
			v = g.arrive(ctx, a)
		case err := <-exhausted:
			v = unable(g.cfg.Rank, err)
		case ev := <-events:
			v = g.handle(ev)
		case f := <-found:
			g.seeker, g.last = nil, f.err
			if f.err == nil {
				g.connect(f.leaf)
			} else if ctx.Err() == nil {
				g.hub.farewell(nil) // another process of this rank may do better
				return nil, fmt.Errorf("rendezvous: rank %d cannot reach rank %d at %s: %w",
					g.cfg.Rank, g.parent(), g.where(), f.err)
			}
		case f := <-frames:
			return g.welcome(ctx, f)
		case <-dead:
			if g.up.told {
				v = g.up.end
			} else {
				g.seekAgain(ctx)
			}
		case <-ctx.Done():
			return nil, g.cancelled(ctx)
		case <-g.cfg.remind.C:
			g.cfg.remind.next()
			g.warn()
		case <-g.cfg.expired:
			v = g.expired(ctx)
		}
		if v != nil {
			g.hub.farewell(v.frame())
			if g.up != nil {
				g.up.leave(nil)
			}
			return nil, v.err()
		}
	}
}

// warn says that this rank has not reached its parent. Once it has, rank 0 knows which ranks are missing, and says so.
func (g *gathering) warn() {
	if g.up != nil || g.seeker == nil {
		return
	}
	why := "no answer yet"
	if err := g.seeker.lastError(); err != nil {
		why = err.Error()
	}
	g.cfg.Logger.Warn(fmt.Sprintf("joining: rank %d has tried for %v to reach rank %d at %s: %s", g.cfg.Rank,
		forPeople(time.Since(g.start)), g.parent(), g.where(), why))
}

// arrive admits a child and tells the parent. Rank 0 decides whether the child can be in the job.
func (g *gathering) arrive(ctx context.Context, a arrival) *verdict {
	if a.refused {
		g.tell(nil, g.cfg.Rank, textFrame(frameRefused, a.addr))
		return nil
	}
	rank := a.hello.rank
	if g.cfg.seen != nil {
		defer g.cfg.seen(rank)
	}
	if rank == g.cfg.Rank || g.cfg.tree.parent(rank) != g.cfg.Rank {
		_ = a.conn.Close() // only a rank with another tree does that
		return nil
	}
	if v := settle(ctx, g.hub, rank, g.handle); v != nil {
		g.hub.refuse(a)
		return v
	}
	if rank >= g.cfg.Size || g.hub.peers[rank] != nil {
		g.hub.refuse(a)
		g.tell(nil, rank, a.frame())
		return nil
	}
	p := g.hub.add(a)
	g.hub.peers[rank] = p
	g.tell(p, rank, a.frame())
	return nil
}

// handle passes an event on.
func (g *gathering) handle(ev event) *verdict {
	if !g.hub.current(ev) {
		return nil
	}
	if t := ev.frame.typ; ev.err == nil && (t == frameArrival || t == frameRefused) {
		g.tell(ev.child, ev.rank, ev.frame)
		return nil
	}
	why, err := decodeLeave(ev.frame.payload)
	if ev.err == nil && ev.frame.typ == frameLeave && err == nil && why == leftDeadline {
		if g.up == nil {
			if last := g.stopSeeking(); g.up == nil {
				return g.unreached(fmt.Sprintf("rank %d %v", ev.rank, why), last)
			}
		}
		g.relay(ev.relay()) // rank 0's verdict is for the late rank too
		return nil
	}
	g.known = slices.DeleteFunc(g.known, func(n notice) bool {
		return n.child == ev.child && g.cfg.tree.within(n.rank, ev.rank)
	})
	g.hub.drop(ev)
	g.relay(ev.relay())
	return nil
}

// tell passes a frame on, now and to every parent that comes later. Ranks that send too many lose some.
func (g *gathering) tell(child *peer, rank int, f frame) {
	if len(g.known) >= 2*g.cfg.Size+maxStrangers {
		return
	}
	n := notice{child, rank, relayFrame(rank, f)}
	g.known = append(g.known, n)
	g.relay(n.frame)
}

// relay writes a frame to the parent, if there is one. After an error, the reader says more.
func (g *gathering) relay(f []byte) {
	if g.up == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	if g.up.send(ctx, f) != nil {
		closeWrite(g.up.conn)
	}
}

func (g *gathering) connect(l *leaf) {
	g.up = l
	for _, n := range g.known {
		g.relay(n.frame)
	}
}

func (g *gathering) seekAgain(ctx context.Context) {
	g.up.leave(nil)
	g.wait = min(max(2*g.wait, firstWait), longWait)
	g.up, g.seeker = nil, g.seek(ctx)
}

// stopSeeking ends the search, if there is one. If the search does not find the parent at that moment, stopSeeking
// returns the reason why there is none.
func (g *gathering) stopSeeking() error {
	if g.seeker != nil {
		f := g.seeker.stop()
		g.seeker, g.last = nil, f.err
		if f.leaf != nil {
			g.connect(f.leaf)
		}
	}
	if g.last == nil {
		g.last = errors.New("no answer yet")
	}
	return g.last
}

// welcome makes the session, if the frame is a welcome.
func (g *gathering) welcome(ctx context.Context, f frame) (*Session, error) {
	b := &branch{rank: g.cfg.Rank, relays: g.gate != nil, up: g.up, from: g.up, hub: g.hub, spread: g.spread}
	seed, from, err := decodeWelcome(f.payload)
	// A rank that seals accepts no seed in the clear.
	if f.typ != frameWelcome || err != nil || g.up.differs {
		v := g.up.lost(ErrProtocol, ": %v: no welcome", ErrProtocol)
		b.end(v, leftClosed)
		return nil, v.err()
	}
	if g.gate != nil {
		limited, cancel := context.WithTimeout(context.Background(), handshakeTime)
		defer cancel()
		_ = g.hub.deliver(limited, f.bytes(), "") // a child that misses it has lost its connection, which its reader reports
	}
	if from.addr.IsValid() {
		b.from = g.feed(ctx, from)
	}
	b.start()
	return newSession(b, seed, g.cfg), nil
}

// cancelled leaves because ctx ended. The children look for a successor, unless the time for waiting is over.
func (g *gathering) cancelled(ctx context.Context) error {
	cause := context.Cause(ctx)
	if g.up == nil {
		if last := g.stopSeeking(); g.up == nil {
			g.hub.farewell(nil)
			return fmt.Errorf("rendezvous: rank %d, trying to reach rank %d at %s since %s: %w (last: %w)",
				g.cfg.Rank, g.parent(), g.where(), g.start.Format("15:04:05"), cause, last)
		}
	}
	var last []byte
	if reasonOf(ctx) == leftDeadline && len(g.hub.children()) > 0 {
		if v := g.up.sentence(context.Background(), g.cfg.grace); v != nil {
			last = v.frame()
		}
	}
	g.hub.farewell(last)
	g.up.leave(leaveFrame(reasonOf(ctx)))
	return fmt.Errorf("rendezvous: rank %d, waiting for all ranks at rank %d's address %s: %w",
		g.cfg.Rank, g.parent(), g.where(), cause)
}

// expired is the verdict when this rank's time for waiting ends. If the rank is connected, rank 0 knows which ranks
// are missing, and tells all.
func (g *gathering) expired(ctx context.Context) *verdict {
	if g.up == nil {
		if last := g.stopSeeking(); g.up == nil {
			return g.unreached("", last)
		}
	}
	if v := g.up.sentence(ctx, g.cfg.grace); v != nil {
		return v
	}
	return &verdict{kind: ErrTimeout, size: g.cfg.Size, text: fmt.Sprintf(
		"rank %d reached rank %d at %s, but not all ranks came in %v",
		g.cfg.Rank, g.parent(), g.where(), forPeople(g.cfg.JoinTimeout))}
}

// unreached is the verdict of a rank without parent. Its text begins with the event that ended the search.
func (g *gathering) unreached(event string, last error) *verdict {
	if event != "" {
		event += ": "
	}
	return &verdict{
		kind: ErrTimeout, ranks: []int{g.parent()}, size: g.cfg.Size, cause: errors.Join(ErrLost, last),
		text: fmt.Sprintf("%srank %d could not reach rank %d at %s, tried since %s for %v: %v", event, g.cfg.Rank, g.parent(),
			g.where(), g.start.Format("15:04:05"), forPeople(time.Since(g.start)), last),
	}
}

func (g *gathering) parent() int { return g.cfg.tree.parent(g.cfg.Rank) }

// where says how this rank finds its parent.
func (g *gathering) where() string {
	switch {
	case g.cfg.Store == nil:
		return g.cfg.Addr
	case g.up != nil:
		return g.up.conn.RemoteAddr().String()
	}
	return fmt.Sprintf("its address in the store (attempt %d)", g.cfg.Attempt)
}
