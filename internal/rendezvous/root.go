package rendezvous

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// root is the state of Join on rank 0.
type root struct {
	cfg   Config
	hub   *hub
	gate  *gate
	came  int // number of connected peers
	start time.Time
	left  map[int]string // ranks that came and left, with a description
}

func joinRoot(ctx context.Context, cfg Config) (*Session, error) {
	d, err := open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := &root{cfg: cfg, hub: newHub(cfg), gate: newGate(d, &cfg), start: time.Now(), left: map[int]string{}}
	defer r.gate.close()

	expired := cfg.expired
	if expired == nil {
		timer := time.NewTimer(cfg.JoinTimeout)
		defer timer.Stop()
		expired = timer.C
	}
	if v := r.gather(ctx, expired); v != nil {
		if conflicts[v.kind] != nil {
			r.linger(ctx, expired)
		}
		return nil, r.hub.fail(v)
	}
	seed := newSeed()
	if v := r.welcome(seed); v != nil {
		return nil, r.hub.fail(v)
	}
	return newSession(r.hub, seed), nil
}

// gather waits for all ranks; it returns nil once all are connected.
func (r *root) gather(ctx context.Context, expired <-chan time.Time) *verdict {
	for r.came < r.cfg.Size-1 {
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
			r.came++
			r.saw(a)
		case ev := <-r.hub.events:
			if v := r.depart(ev); v != nil {
				return v
			}
		case <-expired:
			return r.missing(fmt.Sprintf("rank 0 waited %v", forPeople(r.cfg.JoinTimeout)))
		case <-ctx.Done():
			why := fmt.Sprintf("rank 0 was cancelled after %v", forPeople(time.Since(r.start)))
			v := &verdict{kind: verdictLost, size: r.cfg.Size, ranks: []int{0}, text: why}
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
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	for r.hub.peers[rank] != nil {
		select {
		case ev := <-r.hub.events:
			if v := r.depart(ev); v != nil {
				return v
			}
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (r *root) saw(a arrival) {
	if r.cfg.seen != nil {
		r.cfg.seen(a.hello.rank)
	}
}

func (r *root) check(a arrival) *verdict {
	h, from := a.hello, a.conn.RemoteAddr()
	conflict := func(k verdictKind, ranks []int, format string, args ...any) *verdict {
		text := conflicts[k].Error() + ": " + fmt.Sprintf(format, args...)
		return &verdict{kind: k, size: r.cfg.Size, ranks: ranks, text: text}
	}
	both := []int{0, h.rank}
	switch {
	case h.version != r.cfg.Version:
		return conflict(verdictVersion, both, "rank %d at %v runs %q, rank 0 runs %q",
			h.rank, from, h.version, r.cfg.Version)
	case h.program != r.cfg.Program && h.program != "" && r.cfg.Program != "":
		return conflict(verdictProgram, both, "rank %d at %v runs %q, rank 0 runs %q",
			h.rank, from, h.program, r.cfg.Program)
	case a.secure != r.cfg.Secure:
		return conflict(verdictSecure, both, "rank %d at %v was started %s --secure, rank 0 %s; "+
			"use the same Options.Secure or ALLCAST_SECURE on all ranks",
			h.rank, from, with(a.secure), with(r.cfg.Secure))
	case h.size != r.cfg.Size:
		return conflict(verdictSize, both, "rank %d at %v says %d ranks, rank 0 says %d", h.rank, from, h.size, r.cfg.Size)
	case h.rank == 0:
		return conflict(verdictDuplicate, []int{0}, "%v says it is rank 0, which %v is", from, a.conn.LocalAddr())
	case r.hub.peers[h.rank] != nil:
		return conflict(verdictDuplicate, []int{h.rank}, "%v and %v both say they are rank %d",
			r.hub.peers[h.rank].conn.RemoteAddr(), from, h.rank)
	}
	return nil
}

func with(on bool) string {
	if on {
		return "with"
	}
	return "without"
}

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
	r.came--
	_ = p.conn.Close() // its reader ends, unless it has already
	return nil
}

func (r *root) missing(who string) *verdict {
	v := &verdict{kind: verdictMissing, size: r.cfg.Size}
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
	more, keys := r.gate.report()
	v.keys = keys
	v.text = fmt.Sprintf("%s: %d of %d ranks came; missing: %s%s%s",
		who, r.came+1, r.cfg.Size, rankList(v.ranks), gone, more)
	return v
}

// linger waits briefly for the ranks that have not come yet, so that they get the verdict too.
func (r *root) linger(ctx context.Context, expired <-chan time.Time) {
	seen := map[int]bool{}
	for _, p := range slices.Concat(r.hub.extra, r.hub.peers) {
		if p != nil {
			seen[p.rank] = true
		}
	}
	timer := time.NewTimer(r.cfg.grace)
	defer timer.Stop()
	for {
		all := true
		for rank := 1; rank < r.cfg.Size && all; rank++ {
			all = seen[rank]
		}
		if all {
			return
		}
		select {
		case a := <-r.gate.arrivals:
			seen[a.hello.rank] = true
			r.refuse(a)
		case <-r.hub.events:
		case <-expired:
			return
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (r *root) welcome(seed [seedSize]byte) *verdict {
	f := welcomeFrame(seed)
	for _, p := range r.hub.peers[1:] {
		// A few bytes fit an empty socket buffer, so that the write does not block.
		err := p.conn.SetWriteDeadline(time.Now().Add(handshakeTime))
		if err == nil {
			_, err = p.conn.Write(f)
		}
		if err == nil {
			err = p.conn.SetWriteDeadline(time.Time{})
		}
		if err != nil {
			p.broken.Store(true)
			return &verdict{kind: verdictLost, size: r.cfg.Size, ranks: []int{p.rank}, text: ended(p, err)}
		}
	}
	return nil
}
