package allcast

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/wire"
)

// The members of a Subset meet at its leader, the first member. They use messages with tags that no user can
// choose. Every other member sends the leader two messages and gets two answers:
//
//	member: hello             it has called Subset
//	leader: id, or quit       all members have called it, and this is the id
//	member: added, or quit    it has added the communicator
//	leader: go, or quit       all members have added it
//
// A rank that gives up sends quit in place of each message that it has not sent yet, at once. It leaves
// receives behind for the messages that it has not received. No rank therefore waits for one that gave up,
// and no message of a failed Subset is left for a later one.
const (
	subsetQuit = iota // Subset has failed on the sender, or on the rank that the message names
	subsetHello
	subsetID
	subsetAdded
	subsetGo
)

// subsetRounds is the number of messages from a member to the leader, and of their answers.
const subsetRounds = 2

// subsetMsg is a message between the leader and a member.
type subsetMsg struct {
	kind uint32
	id   uint32 // subsetID
	rank uint32 // subsetQuit: rank of the parent that gave up
}

const subsetMsgSize = 12

func (m subsetMsg) encode() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(make([]byte, 0, subsetMsgSize), m.kind)
	return le.AppendUint32(le.AppendUint32(b, m.id), m.rank)
}

func decodeSubset(b []byte) subsetMsg {
	le := binary.LittleEndian
	return subsetMsg{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])}
}

// subsets counts the calls of Subset by a hash of their members and tags, so that each has a tag of its own.
type subsets struct {
	mu    sync.Mutex
	calls map[uint64]uint64
}

// tag returns the tag of the messages of the next Subset with these members and this tag.
func (s *subsets) tag(members []int, tag string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, members, tag)
	key := h.Sum64()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[uint64]uint64{}
	}
	s.calls[key]++
	_, _ = fmt.Fprint(h, " ", s.calls[key])
	return h.Sum64() | reservedTag
}

// reservedTag is set in the tags of messages of this package. Tags of users are not negative.
const reservedTag = 1 << 63

// Subset makes a communicator of some ranks of c, in the given order. Only these ranks call it, all with the same
// list and the same tag. The tag tells concurrent calls apart: several Subsets of different ranks, or of the
// same ranks with different tags, may be under way at the same time. A program that makes many Subsets
// should use few different tags, because c remembers each of them.
//
// If Subset fails on one rank, for example because its ctx has ended, it fails on the other members when they
// call it. Members on which it has already succeeded get a communicator that is aborted. Other ranks notice
// nothing, and c itself stays intact. An invalid argument starts nothing, as in other calls: the other
// members wait.
func (c *Comm) Subset(ctx context.Context, members []int, tag string) (*Comm, error) {
	if err := c.checkUsable(); err != nil {
		return nil, err
	}
	sub := &Comm{job: c.job, rank: slices.Index(members, c.rank)}
	if sub.rank < 0 {
		return nil, invalid("rank %d calls Subset, but is not a member of %v", c.rank, members)
	}
	for i, r := range members {
		if r < 0 || r >= len(c.members) || slices.Contains(members[:i], r) {
			return nil, invalid("member %d of a Subset: want different ranks from 0 to %d", r, len(c.members)-1)
		}
		sub.members = append(sub.members, c.members[r])
	}
	s := &subset{parent: c, sub: sub, tag: c.subsets.tag(members, tag), quitter: c.rank}
	var err error
	if sub.rank == 0 {
		s.peers = slices.Clone(members[1:])
		err = s.lead(ctx)
	} else {
		s.peers = []int{members[0]}
		err = s.follow(ctx)
	}
	if err == nil && c.job.HasGroups() {
		err = s.ofSubset(ctx, sub.testGroups(ctx, sub))
	}
	if err != nil {
		s.quit()
		return nil, during(fmt.Sprintf("subset %q of %d ranks", tag, len(members)), err)
	}
	return sub, nil
}

// subset is one rank's part of a Subset.
type subset struct {
	parent, sub *Comm
	tag         uint64
	peers       []int // ranks of the parent: the other members on the leader, otherwise the leader
	added       bool  // whether this rank has added the communicator
	quitter     int   // rank of the parent that gave up first, as far as this rank knows

	sent, posted int // messages sent to each peer, and receives posted for each
	requests     []*engine.Request
	received     [][]byte // messages of requests
}

// lead runs the leader's part.
func (s *subset) lead(ctx context.Context) error {
	c := s.parent
	id, err := c.job.newID(c.job.splits.Add(1)-1, c.members[c.rank])
	if err != nil {
		return err
	}
	if _, err := s.receive(ctx, subsetHello); err != nil {
		return err
	}
	if err := s.add(id); err != nil {
		return err
	}
	if err := s.send(subsetMsg{kind: subsetID, id: id}); err != nil {
		return err
	}
	if _, err := s.receive(ctx, subsetAdded); err != nil {
		return err
	}
	if err := s.checkIntact(); err != nil {
		return s.ofSubset(ctx, err)
	}
	return s.send(subsetMsg{kind: subsetGo})
}

// follow runs the part of a member that does not lead.
func (s *subset) follow(ctx context.Context) error {
	if err := s.send(subsetMsg{kind: subsetHello}); err != nil {
		return err
	}
	answer, err := s.receive(ctx, subsetID)
	if err != nil {
		return err
	}
	if err := s.add(answer.id); err != nil {
		return err
	}
	if err := s.send(subsetMsg{kind: subsetAdded}); err != nil {
		return err
	}
	_, err = s.receive(ctx, subsetGo)
	return err
}

func (s *subset) add(id uint32) error {
	s.sub.id = id
	if err := s.parent.job.AddComm(id, strconv.FormatUint(uint64(id), 10), s.sub.members); err != nil {
		return exportError(err, s.parent.members)
	}
	s.added = true
	return nil
}

// checkIntact returns an error if a member has given up after it had added the communicator. It aborts the
// communicator then, but a member that had not added it yet misses that.
func (s *subset) checkIntact() error {
	r, err := s.parent.job.StartMessage(s.sub.id, engine.Message{Kind: wire.Recv, Peer: engine.AnyRank, Tag: s.tag})
	if err == nil {
		r.Cancel() // it fails with the communicator, or is withdrawn
		<-r.Done()
		err = r.Err()
	}
	err = exportError(err, s.parent.members)
	if errors.Is(err, ErrWithdrawn) {
		return nil
	}
	if failed := (*RankError)(nil); errors.As(err, &failed) && failed.Rank >= 0 {
		s.quitter = failed.Rank
	}
	return err
}

// ofSubset converts an error of a call on the new communicator into an error of the Subset.
func (s *subset) ofSubset(ctx context.Context, err error) error {
	if failed, ok := errors.AsType[*RankError](err); ok {
		return failed.ofCall("subset", s.parent.members)
	}
	if err != nil && ctx.Err() != nil { // the call has not started
		return s.rankError().withCause(ctx.Err())
	}
	return err
}

// quit ends a Subset that has failed on this rank. Members that have the communicator already learn of it.
func (s *subset) quit() {
	for s.sent < subsetRounds && s.send(subsetMsg{kind: subsetQuit, rank: uint32(s.quitter)}) == nil {
	}
	for s.posted < subsetRounds && s.post() == nil {
	}
	if s.added {
		// If the parent broke, they learn which rank broke it, even if it is none of them.
		_ = s.parent.job.Inherit(s.sub.id, s.parent.id) // fails only if the job is closed
		_ = s.parent.job.Abort(s.sub.id)
		_ = s.sub.Close()
	}
}

// send sends a message to all peers. The message is small, so that a peer need not receive it soon.
func (s *subset) send(m subsetMsg) error {
	s.sent++
	for _, peer := range s.peers {
		if _, err := s.start(wire.Send, peer, m.encode()); err != nil {
			return err
		}
	}
	return nil
}

// post starts to receive a message of every peer.
func (s *subset) post() error {
	s.posted++
	s.requests, s.received = nil, nil
	for _, peer := range s.peers {
		buf := make([]byte, subsetMsgSize)
		r, err := s.start(wire.Recv, peer, buf)
		if err != nil {
			return err
		}
		s.requests, s.received = append(s.requests, r), append(s.received, buf)
	}
	return nil
}

// receive receives a message of every peer and returns the last. It does not withdraw receives if ctx ends.
func (s *subset) receive(ctx context.Context, want uint32) (m subsetMsg, err error) {
	if err := s.post(); err != nil {
		return m, err
	}
	for i, r := range s.requests {
		if r.Wait(ctx); !r.Over() {
			return m, s.rankError().withCause(ctx.Err())
		}
		if err := r.Err(); err != nil {
			return m, exportError(err, s.parent.members)
		}
		if m = decodeSubset(s.received[i]); m.kind != want {
			return m, s.gaveUp(m)
		}
	}
	return m, nil
}

func (s *subset) start(kind wire.CallKind, peer int, buf []byte) (*engine.Request, error) {
	r, err := s.parent.job.StartMessage(s.parent.id, engine.Message{Kind: kind, Peer: peer, Tag: s.tag, Buf: buf})
	return r, exportError(err, s.parent.members)
}

// gaveUp is the error of a Subset that another rank gave up.
func (s *subset) gaveUp(m subsetMsg) error {
	if m.rank >= uint32(len(s.parent.members)) {
		return fmt.Errorf("allcast: %w: an unknown rank gave up", ErrProtocol)
	}
	s.quitter = int(m.rank)
	return s.rankError()
}

// rankError names the rank that gave up.
func (s *subset) rankError() *RankError {
	world := s.parent.members[s.quitter]
	return &RankError{
		Rank: s.quitter, WorldRank: world, Op: "subset", Phase: "agreement", Missing: "the agreement of all members",
		causes: []error{ErrAborted}, reason: "given up", culprit: rankName(world, s.parent.members),
	}
}
