package transfer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/store"
)

// maxStrikes is the number of groups that a receiver may break before it is given up.
const maxStrikes = 3

// group is a set of receivers that get the same segments. The sender is rank 0, member i is rank i + 1.
type group struct {
	id      int
	members []*peer
	comm    *allcast.Comm
	algo    string
	cancel  context.CancelFunc // of joining
	stop    func() bool        // of watching the context
	broken  bool
	err     error // that broke it, if the error names no member
}

func (g *group) has(p *peer) bool { return slices.Contains(g.members, p) }

// form makes a group. If that fails, it gives up the receivers that are to blame.
func (s *sender) form(ctx context.Context, members []*peer) (*group, error) {
	joining, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &group{members: members, cancel: cancel}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // a failure would end the process
	st := store.NewServer("")
	s.mu.Lock()
	if p := notReady(members); p != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("%w: %s", ErrLost, p.name)
	}
	s.groups++
	g.id = s.groups
	s.stores[g.id] = st
	s.joining = g
	s.mu.Unlock()
	local, all := "", ""
	for _, p := range members {
		if name := interfaceOf(p.c.conn.LocalAddr()); isLoopback(p.c.conn.LocalAddr()) {
			local = name
		} else {
			all = name
		}
	}
	ifname := all
	if all == "" {
		ifname = local
	}
	for i, p := range members {
		if err := p.c.send(message{
			Kind: msgJoin, Group: g.id, Rank: i + 1, Size: len(members) + 1, Value: key, Secure: s.encrypt(), Interface: all,
		}); err != nil {
			s.lose(p, err)
		}
	}
	o := groupOptions(0, len(members)+1, key, s.encrypt(), ifname, s.o.Timeout)
	o.Store, o.Logger, o.NoMulticast = st, s.o.Logger, s.o.NoMulticast
	var err error
	g.comm, err = allcast.Join(joining, o)
	s.mu.Lock()
	s.joining = nil
	delete(s.stores, g.id-1) // members may still read the last one
	s.mu.Unlock()
	if err != nil {
		s.blame(joining, g, err)
		s.tell(g, msgEnd)
		return nil, err
	}
	g.stop = context.AfterFunc(ctx, func() { _ = g.comm.Abort() })
	works, reason := g.comm.Multicast()
	if g.algo = "mcast"; !works {
		g.algo = "chain"
	}
	s.event(Event{Event: EventGroup, Members: len(members), Algo: g.algo, Reason: reason})
	return g, nil
}

// notReady returns a receiver that no longer takes part, or nil.
func notReady(members []*peer) *peer {
	if i := slices.IndexFunc(members, func(p *peer) bool { return p.state != stateReady }); i >= 0 {
		return members[i]
	}
	return nil
}

// blame gives up receivers that did not try to join a group.
func (s *sender) blame(ctx context.Context, g *group, err error) {
	if ctx.Err() != nil {
		return // a member was lost, or the user interrupted
	}
	s.mu.Lock()
	missing := slices.DeleteFunc(slices.Clone(g.members), func(p *peer) bool { return p.setGroup >= g.id })
	s.mu.Unlock()
	for _, p := range missing {
		s.lose(p, fmt.Errorf("%w: it did not join: %w", ErrLost, err))
	}
}

// isolate looks for the receivers that break a group, after an error that names none: it tries smaller groups, and
// gives up only receivers that fail alone, again and again. If all smaller groups work, it counts a failure of each
// receiver, so that a group that never works ends as well.
func (s *sender) isolate(ctx context.Context, members []*peer, err error, probe func([]*peer) error) {
	for len(members) == 1 {
		if s.strike(members[0], err) {
			return
		}
		if err = probe(members); err == nil || s.changed(ctx, members) {
			return
		}
	}
	found := false
	for half := range slices.Chunk(members, (len(members)+1)/2) {
		if s.changed(ctx, half) {
			return // one of them was lost: the others may work
		}
		if err := probe(half); err != nil {
			found = true
			if !s.changed(ctx, half) {
				s.isolate(ctx, half, err, probe)
			}
		}
	}
	if !found {
		for _, p := range members {
			s.strike(p, err)
		}
	}
}

// changed reports whether one of the receivers no longer takes part, or the transfer ends.
func (s *sender) changed(ctx context.Context, members []*peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ctx.Err() != nil || s.fatal != nil || notReady(members) != nil
}

// probeBytes is the length of the broadcast with which a group is tried.
const probeBytes = 1 << 10

// probe forms a group and broadcasts bytes that its members discard.
func (s *sender) probe(ctx context.Context, members []*peer) error {
	g, err := s.form(ctx, members)
	if err != nil {
		return err
	}
	defer s.dissolve(g)
	a := &segment{length: int(s.lengthOf(0))}
	a.wire = make([]byte, min(probeBytes, a.length))
	f, err := s.broadcast(g, a, slices.Repeat([]bool{true}, len(members)))
	if err == nil {
		<-f.Done()
		err = f.Err()
	}
	if err != nil {
		s.breakGroup(g, err)
	}
	return err
}

// strike counts a failure of a receiver that seems to be alive. It returns true if the receiver was given up.
func (s *sender) strike(p *peer, err error) bool {
	s.mu.Lock()
	p.strikes++
	out := p.strikes >= maxStrikes
	s.mu.Unlock()
	if out {
		s.lose(p, fmt.Errorf("%w: it broke %d groups: %w", ErrLost, maxStrikes, err))
	}
	return out
}

// breakGroup ends a group after an error, and gives up the receiver that caused it. If the error names none, the group
// keeps the error for isolate, unless a member is already lost.
func (s *sender) breakGroup(g *group, err error) {
	if g.broken {
		return
	}
	g.broken = true
	var failed *allcast.RankError
	if !errors.As(err, &failed) || failed.WorldRank < 1 || failed.WorldRank > len(g.members) {
		g.err = err
		return
	}
	p := g.members[failed.WorldRank-1]
	if errors.Is(err, allcast.ErrRankLost) {
		s.lose(p, fmt.Errorf("%w: %w", ErrLost, err))
		return
	}
	s.strike(p, err)
}

// tell sends a message to all members.
func (s *sender) tell(g *group, kind string) {
	for _, p := range g.members {
		if err := p.c.send(message{Kind: kind, Group: g.id}); err != nil {
			s.lose(p, err)
		}
	}
}

// dissolve ends a group, if there is one.
func (s *sender) dissolve(g *group) {
	if g == nil {
		return
	}
	g.stop()
	s.tell(g, msgEnd)
	s.wg.Go(func() { leave(g.comm, g.broken) })
}
