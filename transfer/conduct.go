package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lukechampine.com/blake3"

	"github.com/allcast/allcast"
)

// conduct runs the transfer: as long as receivers miss segments, it forms the group of those that miss the same ones,
// beginning with the largest, and broadcasts these segments to it.
//
// A receiver that comes late is thus part of the next group, for the rest of the data, and gets the beginning
// afterwards. If a receiver is lost, the group breaks, and the others form the next one.
func (s *sender) conduct(ctx context.Context) error {
	if err := s.waitStart(ctx); err != nil {
		return err
	}
	s.event(Event{Event: EventStart, Files: s.files(), Total: s.m.size, Members: len(s.peers)})
	s.finishAll()
	var g *group
	defer func() { s.dissolve(g) }()
	for {
		members, err := s.pick(ctx)
		if err != nil || members == nil {
			return err
		}
		if g == nil || g.broken || !slices.Equal(g.members, members) {
			s.dissolve(g)
			if g, err = s.form(ctx, members); err != nil {
				g = nil
				s.findCulprits(ctx, members, err)
				continue
			}
		}
		if s.run(ctx, g); g.err != nil {
			s.dissolve(g)
			err, g = g.err, nil
			s.findCulprits(ctx, members, err)
		}
	}
}

// findCulprits looks for receivers that break a group, unless one of them has been given up for it.
func (s *sender) findCulprits(ctx context.Context, members []*peer, err error) {
	if !s.changed(ctx, members) {
		s.isolate(ctx, members, err, func(some []*peer) error { return s.probe(ctx, some) })
	}
}

// finishAll looks for receivers that have everything.
func (s *sender) finishAll() {
	s.mu.Lock()
	peers := slices.Clone(s.peers)
	s.mu.Unlock()
	for _, p := range peers {
		s.finish(p)
	}
}

// misses reports whether a receiver should get a segment now.
func (p *peer) misses(seg int) bool {
	return p.state == stateReady && !p.have.has(seg) && !p.pending.has(seg)
}

// needers returns the receivers that should get a segment.
func (s *sender) needers(seg int) (all []*peer) {
	for _, p := range s.peers {
		if p.misses(seg) {
			all = append(all, p)
		}
	}
	return all
}

// pick returns the members of the next group. It waits until there is something to send, and returns nil if the
// transfer has ended.
func (s *sender) pick(ctx context.Context) ([]*peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var until time.Time // the end of lingering
	for {
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case s.fatal != nil:
			return nil, s.fatal
		}
		if members := s.largest(); members != nil {
			return members, nil
		}
		active, lost := 0, 0
		for _, p := range s.peers {
			switch {
			case p.active():
				active++
			case p.state == stateLost:
				lost++
			}
		}
		if active == 0 {
			if lost == 0 || s.o.Linger <= 0 || s.m.stream {
				return nil, nil
			}
			if until.IsZero() {
				until = time.Now().Add(s.o.Linger)
				t := time.AfterFunc(s.o.Linger, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.cond.Broadcast()
				})
				defer t.Stop()
			}
			if !time.Now().Before(until) {
				return nil, nil
			}
		}
		s.cond.Wait()
	}
}

// largest returns the largest set of receivers that miss the same segment.
func (s *sender) largest() []*peer {
	if first := s.firstOrdered(); first != nil {
		return first
	}
	var best []*peer
	limit := s.total
	if s.total < 0 {
		limit = s.read + 1
	}
	for seg := range limit {
		n := 0
		for _, p := range s.peers {
			if p.misses(seg) {
				n++
			}
		}
		if n > len(best) {
			best = s.needers(seg)
		}
	}
	return best
}

// firstOrdered returns the receivers that miss the next segment of those that need segments in order: of the one that
// has the fewest. The others of them either need that segment next as well, or do not miss it.
func (s *sender) firstOrdered() []*peer {
	first := -1
	for _, o := range s.peers {
		if !o.ordered || o.state != stateReady {
			continue
		}
		if seg := s.next(o); (s.total < 0 || seg < s.total) && (first < 0 || seg < first) {
			first = seg
		}
	}
	if first < 0 {
		return nil
	}
	return s.needers(first)
}

// next returns the first segment that was not broadcast to a receiver.
func (s *sender) next(p *peer) int {
	seg := 0
	for p.have.has(seg) || p.pending.has(seg) {
		seg++
	}
	return seg
}

// nextFor returns the first segment from a number on that exactly the members of a group miss. It does not skip a
// segment that a member needs in order.
func (s *sender) nextFor(g *group, from int) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for seg := from; s.total < 0 || seg < s.total; seg++ {
		if s.exactly(g, seg) {
			return seg, true
		}
		if slices.ContainsFunc(g.members, func(p *peer) bool { return p.ordered && p.misses(seg) }) {
			break
		}
		if s.total < 0 && seg >= s.read {
			break
		}
	}
	return 0, false
}

// exactly reports whether the members of a group are the receivers that miss a segment.
func (s *sender) exactly(g *group, seg int) bool {
	i := 0
	for _, p := range s.peers {
		if !p.misses(seg) {
			continue
		}
		if i >= len(g.members) || g.members[i] != p {
			return false
		}
		i++
	}
	return i == len(g.members)
}

// skips reports whether a member that needs segments in order misses one before this one: it has reported a loss.
func (s *sender) skips(g *group, seg int) bool {
	return slices.ContainsFunc(g.members, func(p *peer) bool { return p.ordered && s.next(p) < seg })
}

// segment is a segment that is read ahead.
type segment struct {
	seg    int
	done   chan struct{}
	ready  bool    // done is closed; guarded by the sender's lock
	buf    *[]byte // of the pool
	wire   []byte  // what is broadcast
	length int
	sum    hash
	err    error
}

// readAhead starts to read a segment.
func (s *sender) readAhead(seg int) *segment {
	a := &segment{seg: seg, done: make(chan struct{}), buf: s.pool.Get().(*[]byte)}
	work := func() {
		defer func() {
			close(a.done)
			s.mu.Lock()
			defer s.mu.Unlock()
			a.ready = true
			s.cond.Broadcast()
		}()
		var n int
		if n, a.err = s.src.read(seg, *a.buf); a.err != nil {
			return
		}
		a.wire, a.length = (*a.buf)[:n], n
		a.sum = blake3.Sum256(a.wire)
		if a.err = s.h.record(seg, a.sum); a.err != nil || s.zip == nil {
			return
		}
		if z := s.zip.EncodeAll(a.wire, nil); len(z) < n-n/16 {
			a.wire = z
		}
	}
	if s.m.stream {
		go work() // not waited for: the pipe may be idle forever
	} else {
		s.wg.Go(work)
	}
	return a
}

func (s *sender) isReady(a *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.ready
}

// await waits until a segment is read. It returns false if no member needs it any more.
func (s *sender) await(ctx context.Context, g *group, a *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !a.ready {
		needed := slices.ContainsFunc(g.members, func(p *peer) bool { return p.state == stateReady })
		if ctx.Err() != nil || s.fatal != nil || !needed {
			return false
		}
		s.cond.Wait()
	}
	return true
}

// flight is a broadcast that has started.
type flight struct {
	a   *segment
	req *allcast.Request
	to  []*peer // members that store the segment
}

// run broadcasts segments to a group until it breaks, or its members have them, or others miss them as well.
func (s *sender) run(ctx context.Context, g *group) {
	var ahead []*segment
	var flying []flight
	from := 0
	defer func() {
		for _, a := range ahead {
			if s.m.stream {
				continue // its goroutine may still use the buffer
			}
			<-a.done
			s.pool.Put(a.buf)
		}
		for _, f := range flying {
			s.land(g, f)
		}
	}()
	for !g.broken && ctx.Err() == nil {
		for len(ahead) <= window {
			seg, ok := s.nextFor(g, from)
			if !ok {
				break
			}
			from = seg + 1
			if s.m.stream {
				s.mu.Lock()
				s.read = max(s.read, seg+1)
				s.mu.Unlock()
			}
			ahead = append(ahead, s.readAhead(seg))
		}
		if len(ahead) == 0 {
			return
		}
		a := ahead[0]
		if s.m.stream && len(flying) > 0 && !s.isReady(a) {
			s.land(g, flying[0]) // the pipe may be idle, so this may be the last one for a long time
			flying = flying[1:]
			continue
		}
		if !s.await(ctx, g, a) {
			return
		}
		switch {
		case errors.Is(a.err, errEnd) && s.m.stream:
			s.endOfPipe(a.seg)
			return
		case a.err != nil:
			s.fail(a.err)
			return
		}
		if !s.credit(ctx, g, a.seg) {
			return
		}
		s.pacer.wait(ctx, len(a.wire))
		ahead = ahead[1:]
		f, err := s.cast(g, a)
		if err != nil {
			s.pool.Put(a.buf)
			s.landed(f)
			s.breakGroup(g, err)
			return
		}
		flying = append(flying, f)
		if len(flying) >= window {
			s.land(g, flying[0])
			flying = flying[1:]
		}
	}
}

// endOfPipe records the number of segments of a pipe.
func (s *sender) endOfPipe(total int) {
	s.mu.Lock()
	if s.total < 0 {
		s.total, s.read = total, total
		s.m.size = s.size
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	s.finishAll()
}

// patience is the time for which a group waits for the disk of one receiver, in all.
const patience = 500 * time.Millisecond

// credit waits until the members have room for a segment. It returns false if the segment should not be sent to this
// group any more.
//
// If a member has no room but at least half of the others have plenty, the group soon continues without waiting for
// it: that member drops segments, and gets them later.
func (s *sender) credit(ctx context.Context, g *group, seg int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if ctx.Err() != nil || s.fatal != nil || g.broken || !s.exactly(g, seg) || s.skips(g, seg) {
			return false
		}
		var full []*peer
		roomy, lagging := 0, 0
		for _, p := range g.members {
			if p.lagging && p.pendingN <= s.lag/4 {
				p.lagging, p.waited = false, 0
			}
			switch {
			case p.lagging:
				lagging++
			case p.pendingN >= s.lag:
				full = append(full, p)
			case p.pendingN <= s.lag/2:
				roomy++
			}
		}
		if lagging == len(g.members) {
			s.cond.Wait() // all of them would discard the segment
			continue
		}
		if len(full) == 0 {
			return true
		}
		if 2*roomy < len(g.members) {
			s.cond.Wait()
			continue
		}
		t := time.AfterFunc(patience/8, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.cond.Broadcast()
		})
		start := time.Now()
		s.cond.Wait()
		t.Stop()
		for _, p := range full {
			if p.waited += time.Since(start); p.waited >= patience && p.pendingN >= s.lag && p.active() {
				s.leaveBehind(p)
			}
		}
	}
}

// leaveBehind lets a group continue without waiting for a receiver. If it cannot catch up later, it is lost.
func (s *sender) leaveBehind(p *peer) {
	if s.m.stream || p.ordered {
		s.loseLocked(p, fmt.Errorf("%w: it is further behind than allowed (MaxLag), and cannot catch up", errReceiver))
		return
	}
	p.lagging = true
	s.wg.Go(func() { s.event(Event{Event: EventLagging, Receiver: p.name, Address: p.addr}) })
}

// cast broadcasts a segment.
func (s *sender) cast(g *group, a *segment) (f flight, err error) {
	f.a = a
	s.mu.Lock()
	discard := make([]bool, len(g.members))
	for i, p := range g.members {
		if discard[i] = p.lagging; p.lagging {
			continue
		}
		p.pending.set(a.seg)
		p.pendingN++
		p.flying++
		f.to = append(f.to, p)
	}
	if s.m.stream {
		s.size = max(s.size, int64(a.seg)*s.m.segment+int64(a.length))
	}
	s.sent += int64(len(a.wire))
	s.mu.Unlock()
	f.req, err = s.broadcast(g, a, discard)
	return f, err
}

// broadcast announces a segment to the members, with those that discard it, and starts its broadcast.
func (s *sender) broadcast(g *group, a *segment, discard []bool) (*allcast.Request, error) {
	m := message{
		Kind: msgCast, Group: g.id, Segment: a.seg, Hash: a.sum[:], Length: int64(a.length), Wire: int64(len(a.wire)),
		Algo: g.algo,
	}
	for i, p := range g.members {
		m.Discard = discard[i]
		if err := p.c.send(m); err != nil {
			s.lose(p, err)
		}
	}
	return g.comm.StartBroadcast(a.wire, 0, allcast.WithAlgorithm(g.algo))
}

// landed starts the clock of receivers that store a segment: it has arrived.
func (s *sender) landed(f flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range f.to {
		p.flying--
		p.moved = time.Now()
	}
}

// land waits for a broadcast.
func (s *sender) land(g *group, f flight) {
	<-f.req.Done()
	s.pool.Put(f.a.buf)
	s.landed(f)
	if err := f.req.Err(); err != nil {
		s.breakGroup(g, err)
		return
	}
	s.progress()
}

// progress reports the bytes that the slowest active receiver has.
func (s *sender) progress() {
	s.mu.Lock()
	least := int64(-1)
	for _, p := range s.peers {
		if p.state == stateReady && (least < 0 || p.stored < least) {
			least = p.stored
		}
	}
	size := s.m.size
	s.mu.Unlock()
	s.event(Event{Event: EventProgress, Bytes: max(least, 0), Total: size})
}
