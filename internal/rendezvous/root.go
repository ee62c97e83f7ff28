package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/allcast/allcast/internal/units"
)

// root is the state of Join on rank 0.
type root struct {
	cfg   Config
	hub   *hub
	gate  *gate
	came  map[int]bool // other ranks that are connected, or that rank 0 has refused
	start time.Time
	left  map[int]string // ranks that came and left, with a description
}

func joinRoot(ctx context.Context, cfg Config) (*Session, error) {
	g, err := newGate(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	r := &root{
		cfg: cfg, hub: newHub(cfg), gate: g, start: time.Now(),
		came: map[int]bool{}, left: map[int]string{},
	}
	defer r.gate.close()
	if v := r.gather(ctx); v != nil {
		if !errors.Is(v.kind, ErrTimeout) && !errors.Is(v.kind, ErrLost) { // ranks contradict each other
			r.linger(ctx)
		}
		return nil, r.hub.fail(v)
	}
	seed := newSeed()
	if v := r.welcome(seed); v != nil {
		return nil, r.hub.fail(v)
	}
	return newSession(r.hub, seed, cfg), nil
}

// welcome tells all ranks that all have come, and from which rank they get the results of exchanges.
func (r *root) welcome(seed [seedSize]byte) *verdict {
	// A few bytes fit an empty socket buffer, so the writes do not block.
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	return r.hub.write(ctx, r.hub.children(), "", func(p *peer) []byte {
		from := entry{}
		if parent := r.cfg.results.parent(p.rank); parent != 0 && r.cfg.Store == nil {
			from = r.hub.peers[parent].offer
		}
		p.fed = from.addr.IsValid()
		return welcomeFrame(seed, from)
	})
}

// gather waits for all ranks; it returns nil once all are connected.
func (r *root) gather(ctx context.Context) *verdict {
	for len(r.came) < r.cfg.Size-1 {
		select {
		case a := <-r.gate.arrivals:
			v := settle(ctx, r.hub, a.hello.rank, r.handle)
			if v == nil {
				v = r.arrive(a)
			}
			if v != nil {
				return v
			}
		case ev := <-r.hub.events:
			if v := r.handle(ev); v != nil {
				return v
			}
		case err := <-r.gate.exhausted:
			return unable(0, err)
		case <-r.cfg.remind.C:
			r.cfg.remind.next()
			v := r.missing(fmt.Sprintf("rank 0 has waited %v", forPeople(time.Since(r.start))))
			r.cfg.Logger.Warn("joining: " + v.text)
		case <-r.cfg.expired:
			return r.missing(fmt.Sprintf("rank 0 waited %v", forPeople(r.cfg.JoinTimeout)))
		case <-ctx.Done():
			why := fmt.Sprintf("rank 0 was cancelled after %v", forPeople(time.Since(r.start)))
			v := &verdict{kind: ErrLost, ranks: []int{0}, text: why}
			if reasonOf(ctx) == leftDeadline {
				v = r.missing(why)
			}
			v.cause = context.Cause(ctx)
			return v
		}
	}
	return nil
}

// settle waits briefly for the end of a process whose rank has just arrived again. Its parent may notice the end
// of a process later than the arrival of its successor.
func settle(ctx context.Context, h *hub, rank int, handle func(event) *verdict) *verdict {
	if h.peer(rank) == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for h.peer(rank) != nil {
		select {
		case ev := <-h.events:
			if v := handle(ev); v != nil {
				return v
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// handle processes an event before all ranks came.
func (r *root) handle(ev event) *verdict {
	switch {
	case !r.hub.current(ev):
		return nil
	case ev.frame.typ == frameRefused:
		r.gate.count(ErrKey, units.Printable(string(ev.frame.payload)))
		if r.cfg.seen != nil {
			r.cfg.seen(-1)
		}
		return nil
	case ev.frame.typ != frameArrival:
		return r.depart(ev)
	}
	a, err := decodeArrival(ev.frame.payload)
	if err != nil || a.hello.rank != ev.rank {
		ev.rank, ev.err = ev.child.rank, ErrProtocol
		return r.depart(ev)
	}
	return r.arrive(a)
}

// arrive admits a rank, or returns the reason why it cannot be in the job.
func (r *root) arrive(a arrival) *verdict {
	v := r.check(a)
	if v != nil {
		r.hub.refuse(a)
	} else {
		r.hub.peers[a.hello.rank] = r.hub.add(a)
	}
	r.saw(a)
	return v
}

func (r *root) saw(a arrival) {
	if rank := a.hello.rank; rank > 0 && rank < r.cfg.Size {
		r.came[rank] = true
	}
	if r.cfg.seen != nil {
		r.cfg.seen(a.hello.rank)
	}
}

// protocolName describes what a rank speaks.
func protocolName(protocol int, version string) string {
	return fmt.Sprintf("protocol %d (version %s)", protocol, version)
}

func (r *root) check(a arrival) *verdict {
	h, from := a.hello, a.addr
	conflict := func(kind error, ranks []int, format string, args ...any) *verdict {
		return &verdict{kind: kind, ranks: ranks, text: kind.Error() + ": " + fmt.Sprintf(format, args...)}
	}
	both := []int{0, h.rank}
	switch {
	case h.protocol != r.cfg.Protocol:
		return conflict(ErrVersion, both, "rank %d at %v speaks %s, rank 0 speaks %s; "+
			"install versions with the same protocol number on all hosts (see allcast version)",
			h.rank, from, protocolName(h.protocol, h.version), protocolName(r.cfg.Protocol, r.cfg.Version))
	case h.program != r.cfg.Program && h.program != "" && r.cfg.Program != "":
		return conflict(ErrProgram, both, "rank %d at %v runs %q, rank 0 runs %q",
			h.rank, from, h.program, r.cfg.Program)
	case a.secure != r.cfg.Secure:
		return conflict(ErrSecure, both, "rank %d at %v joins %s encryption, rank 0 %s; "+
			"use the same Options.Secure or ALLCAST_SECURE on all ranks",
			h.rank, from, with[a.secure], with[r.cfg.Secure])
	case h.size != r.cfg.Size:
		return conflict(ErrSize, both, "rank %d at %v says %d ranks, rank 0 says %d", h.rank, from, h.size, r.cfg.Size)
	case h.rank == 0: // no rank relays that, so there is a connection
		return conflict(ErrDuplicate, []int{0}, "%v says it is rank 0, which %v is", from, a.conn.LocalAddr())
	case r.hub.peers[h.rank] != nil:
		return conflict(ErrDuplicate, []int{h.rank}, "%v and %v both say they are rank %d",
			r.hub.peers[h.rank].addr, from, h.rank)
	}
	return nil
}

var with = map[bool]string{true: "with", false: "without"}

// depart removes a rank that left before all ranks came; it may be started again. A rank whose time for
// waiting ended ends Join on all ranks.
func (r *root) depart(ev event) *verdict {
	p := r.hub.peer(ev.rank)
	if p == nil {
		return nil
	}
	why := "without saying why"
	if ev.frame.typ == frameLeave {
		if reason, err := decodeLeave(ev.frame.payload); err == nil {
			if reason == leftDeadline {
				return r.missing(fmt.Sprintf("rank %d %v", p.rank, reason))
			}
			why = "as it " + reason.String()
		}
	}
	r.left[p.rank] = fmt.Sprintf("rank %d came from %v and left %s", p.rank, p.addr, why)
	r.hub.drop(ev)
	maps.DeleteFunc(r.came, func(rank int, _ bool) bool { return r.hub.peers[rank] == nil })
	return nil
}

// missing is the verdict that ranks did not come; event says what made rank 0 stop waiting. Ranks below a missing
// rank cannot come without it, so they are not to blame.
func (r *root) missing(event string) *verdict {
	v := &verdict{kind: ErrTimeout}
	gone := ""
	var below []int
	for rank, p := range r.hub.peers {
		if rank == 0 || p != nil {
			continue
		}
		if parent := r.cfg.tree.parent(rank); parent != 0 && r.hub.peers[parent] == nil {
			below = append(below, rank)
			continue
		}
		v.ranks = append(v.ranks, rank)
		if s := r.left[rank]; s != "" && len(gone) < maxText/4 {
			gone += "; " + s
		}
	}
	if below != nil {
		gone += "; the following cannot come without them: " + rankList(below)
	}
	var more string
	more, v.keys = r.gate.report()
	v.text = fmt.Sprintf("%s: %d of %d ranks came; missing: %s%s%s",
		event, len(r.came)+1, r.cfg.Size, rankList(v.ranks), gone, more)
	return v
}

// linger waits briefly for the ranks that have not come yet, so that they get the verdict too.
func (r *root) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.grace)
	defer cancel()
	for len(r.came) < r.cfg.Size-1 {
		select {
		case a := <-r.gate.arrivals:
			r.hub.refuse(a)
			r.saw(a)
		case ev := <-r.hub.events:
			if ev.frame.typ != frameArrival {
				continue
			}
			if a, err := decodeArrival(ev.frame.payload); err == nil {
				r.saw(a)
			}
		case <-r.cfg.expired:
			return
		case <-ctx.Done():
			return
		}
	}
}
