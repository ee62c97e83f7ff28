package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// root is the state of Join on rank 0.
type root struct {
	cfg   Config
	hub   *hub
	gate  *gate
	came  map[int]bool // other ranks that are connected
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
	// A few bytes fit an empty socket buffer, so the writes do not block.
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	if v := r.hub.deliver(ctx, welcomeFrame(seed), ""); v != nil {
		return nil, r.hub.fail(v)
	}
	return newSession(r.hub, seed), nil
}

// gather waits for all ranks; it returns nil once all are connected.
func (r *root) gather(ctx context.Context) *verdict {
	for len(r.came) < r.cfg.Size-1 {
		select {
		case a := <-r.gate.arrivals:
			v := r.settle(ctx, a.hello.rank)
			if v == nil {
				v = r.check(a)
			}
			if v != nil {
				r.refuse(a)
				return v
			}
			r.hub.peers[a.hello.rank] = r.hub.add(a)
			r.saw(a)
		case ev := <-r.hub.events:
			if v := r.depart(ev); v != nil {
				return v
			}
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

// settle waits briefly for the end of a process whose rank has just arrived again. Rank 0 may notice the end
// of a process later than the arrival of its successor.
func (r *root) settle(ctx context.Context, rank int) *verdict {
	if rank >= r.cfg.Size || r.hub.peers[rank] == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for r.hub.peers[rank] != nil {
		select {
		case ev := <-r.hub.events:
			if v := r.depart(ev); v != nil {
				return v
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (r *root) saw(a arrival) {
	if rank := a.hello.rank; rank > 0 && rank < r.cfg.Size {
		r.came[rank] = true
	}
	if r.cfg.seen != nil {
		r.cfg.seen(a.hello.rank)
	}
}

func (r *root) check(a arrival) *verdict {
	h, from := a.hello, a.conn.RemoteAddr()
	conflict := func(kind error, ranks []int, format string, args ...any) *verdict {
		return &verdict{kind: kind, ranks: ranks, text: kind.Error() + ": " + fmt.Sprintf(format, args...)}
	}
	both := []int{0, h.rank}
	switch {
	case h.version != r.cfg.Version:
		return conflict(ErrVersion, both, "rank %d at %v runs %q, rank 0 runs %q",
			h.rank, from, h.version, r.cfg.Version)
	case h.program != r.cfg.Program && h.program != "" && r.cfg.Program != "":
		return conflict(ErrProgram, both, "rank %d at %v runs %q, rank 0 runs %q",
			h.rank, from, h.program, r.cfg.Program)
	case a.secure != r.cfg.Secure:
		return conflict(ErrSecure, both, "rank %d at %v was started %s --secure, rank 0 %s; "+
			"use the same Options.Secure or ALLCAST_SECURE on all ranks",
			h.rank, from, with[a.secure], with[r.cfg.Secure])
	case h.size != r.cfg.Size:
		return conflict(ErrSize, both, "rank %d at %v says %d ranks, rank 0 says %d", h.rank, from, h.size, r.cfg.Size)
	case h.rank == 0:
		return conflict(ErrDuplicate, []int{0}, "%v says it is rank 0, which %v is", from, a.conn.LocalAddr())
	case r.hub.peers[h.rank] != nil:
		return conflict(ErrDuplicate, []int{h.rank}, "%v and %v both say they are rank %d",
			r.hub.peers[h.rank].conn.RemoteAddr(), from, h.rank)
	}
	return nil
}

var with = map[bool]string{true: "with", false: "without"}

// refuse keeps a connection for the verdict, up to a limit.
func (r *root) refuse(a arrival) {
	r.saw(a)
	if len(r.hub.extra) >= r.cfg.Size+maxPending {
		_ = a.conn.Close()
		return
	}
	r.hub.extra = append(r.hub.extra, r.hub.add(a))
}

// depart removes a rank that left before all ranks came; it may be started again. A rank whose time for
// waiting ended ends Join on all ranks.
func (r *root) depart(ev event) *verdict {
	p := ev.peer
	if r.hub.peers[p.rank] != p {
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
	r.left[p.rank] = fmt.Sprintf("rank %d came from %v and left %s", p.rank, p.conn.RemoteAddr(), why)
	r.hub.peers[p.rank] = nil
	delete(r.came, p.rank)
	_ = p.conn.Close() // its reader ends, unless it has already
	return nil
}

// missing is the verdict that ranks did not come; event says what made rank 0 stop waiting.
func (r *root) missing(event string) *verdict {
	v := &verdict{kind: ErrTimeout}
	gone := ""
	for rank, p := range r.hub.peers {
		if rank == 0 || p != nil {
			continue
		}
		v.ranks = append(v.ranks, rank)
		if s := r.left[rank]; s != "" && len(gone) < maxText/4 {
			gone += "; " + s
		}
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
			r.refuse(a)
		case <-r.hub.events:
		case <-r.cfg.expired:
			return
		case <-ctx.Done():
			return
		}
	}
}
