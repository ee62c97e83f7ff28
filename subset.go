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
// choose. A member sends the leader two messages: hello, and then added or quit. The leader answers hello
// with the id of the new communicator, and added with go; or either of them with quit. A rank that gives up
// says quit when it is its turn, and receives what is still on its way. No message of a failed
// Subset is therefore left for a later one.
const (
	subsetQuit  = iota // Subset has failed on the sender, or on the rank that the message names
	subsetHello        // member: it has called Subset
	subsetID           // leader: all members have called it, and this is the id
	subsetAdded        // member: it has added the communicator
	subsetGo           // leader: all members have added it
)

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

// subsets counts the calls of Subset, so that each has tags of its own.
type subsets struct {
	mu    sync.Mutex
	calls map[string]uint64
}

// tag returns the tag of the messages of the next Subset with these members and this tag.
func (s *subsets) tag(members []int, tag string) uint64 {
	key := fmt.Sprint(members, tag)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]uint64{}
	}
	s.calls[key]++
	h := fnv.New64a()
	fmt.Fprint(h, key, " ", s.calls[key])
	return h.Sum64() | reservedTag
}

// reservedTag is set in the tags of messages of this package. Tags of users are not negative.
const reservedTag = 1 << 63

// Subset makes a communicator of some ranks of c, in the given order. Only these ranks call it, all with the same
// list and the same tag. The tag tells concurrent calls apart: several Subsets of different ranks, or of the
// same ranks with different tags, may be under way at the same time.
//
// If Subset fails on one rank, for example because its ctx has ended, it fails on the other members. Members
// on which it has already succeeded get a communicator that is aborted. Other ranks notice nothing, and c
// itself stays intact.
func (c *Comm) Subset(ctx context.Context, members []int, tag string) (*Comm, error) {
	if err := c.checkStart(ctx, "subset"); err != nil {
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
	s := &subset{parent: c, sub: sub, ranks: members, tag: c.subsets.tag(members, tag)}
	var err error
	if sub.rank == 0 {
		err = s.lead(ctx)
	} else {
		err = s.follow(ctx)
	}
	if err == nil && c.job.HasGroups() {
		err = sub.testGroups(ctx, sub)
		if failed, ok := errors.AsType[*RankError](err); ok {
			err = failed.forMembers(c.members)
		}
	}
	if err != nil {
		s.undo()
		return nil, fmt.Errorf("subset %q of %d ranks: %w", tag, len(members), err)
	}
	return sub, nil
}

// subset is one rank's part of a Subset.
type subset struct {
	parent, sub *Comm
	ranks       []int // members, as ranks of the parent
	tag         uint64
	added       bool
}

// undo removes the communicator after a failure. Members that have it already learn of the failure.
func (s *subset) undo() {
	if s.added {
		_ = s.parent.job.Abort(s.sub.id) // fails only if the job is closed
		_ = s.sub.Close()
	}
}

func (s *subset) add(id uint32) error {
	s.sub.id = id
	if err := s.parent.job.AddComm(id, strconv.FormatUint(uint64(id), 10), s.sub.members); err != nil {
		return exportError(err, s.parent.members)
	}
	s.added = true
	return nil
}

// lead runs the leader's part.
func (s *subset) lead(ctx context.Context) error {
	c := s.parent
	id, err := c.job.newID(c.job.splits.Add(1)-1, c.members[c.rank])
	if err == nil {
		err = s.round(ctx, subsetHello, subsetMsg{kind: subsetID, id: id}, func() error { return s.add(id) })
	}
	if err != nil {
		return err
	}
	return s.round(ctx, subsetAdded, subsetMsg{kind: subsetGo}, func() error { return nil })
}

// round collects one message of each member and answers all of them. If a member, or this rank, gave up, the
// answer is quit.
func (s *subset) round(ctx context.Context, want uint32, answer subsetMsg, ready func() error) error {
	requests := make([]*engine.Request, len(s.ranks))
	bufs := make([][]byte, len(s.ranks))
	for i := 1; i < len(s.ranks); i++ {
		bufs[i] = make([]byte, subsetMsgSize)
		var err error
		if requests[i], err = s.start(wire.Recv, i, bufs[i]); err != nil {
			return err
		}
	}
	var failed error
	for i := 1; i < len(s.ranks); i++ {
		if err := s.await(ctx, requests[i]); err != nil {
			failed = err
			break
		}
		if m := decodeSubset(bufs[i]); m.kind != want {
			failed = s.gaveUp(m)
			answer.rank = m.rank
			break
		}
	}
	if failed == nil {
		if failed = ready(); failed != nil {
			answer.rank = uint32(s.parent.rank)
		}
	} else if errors.Is(failed, ctx.Err()) && ctx.Err() != nil {
		answer.rank = uint32(s.parent.rank)
	}
	if failed == nil {
		return s.answer(answer)
	}
	answer.kind = subsetQuit
	go s.dismiss(requests, bufs, want, answer)
	return failed
}

// answer sends a message to all members.
func (s *subset) answer(m subsetMsg) error {
	for i := 1; i < len(s.ranks); i++ {
		if _, err := s.start(wire.Send, i, m.encode()); err != nil { // small: the members wait for it
			return err
		}
	}
	return nil
}

// dismiss answers quit to all members when their messages have come, unless the parent ends before.
func (s *subset) dismiss(requests []*engine.Request, bufs [][]byte, want uint32, quit subsetMsg) {
	for i := 1; i < len(s.ranks); i++ {
		<-requests[i].Done()
		if requests[i].Err() != nil {
			return // the parent is broken or closed
		}
		if _, err := s.start(wire.Send, i, quit.encode()); err != nil {
			return
		}
		if want == subsetHello { // its second message follows
			r, err := s.start(wire.Recv, i, bufs[i])
			if err != nil {
				return
			}
			<-r.Done()
		}
	}
}

// follow runs the part of a member that does not lead.
func (s *subset) follow(ctx context.Context) error {
	if err := s.tell(subsetMsg{kind: subsetHello}); err != nil {
		return err
	}
	r, buf, err := s.listen()
	if err != nil {
		return err
	}
	if err := s.await(ctx, r); err != nil {
		go s.leave(r, buf)
		return err
	}
	m := decodeSubset(buf)
	if m.kind == subsetID {
		err = s.add(m.id)
	} else {
		err = s.gaveUp(m)
	}
	if err != nil {
		_ = s.tell(subsetMsg{kind: subsetQuit, rank: uint32(s.parent.rank)}) // it fails only with the parent
		if m.kind == subsetID {
			go s.drain()
		}
		return err
	}
	if err := s.tell(subsetMsg{kind: subsetAdded}); err != nil {
		return err
	}
	if r, buf, err = s.listen(); err != nil {
		return err
	}
	if err := s.await(ctx, r); err != nil {
		return err // the answer is received, and the others learn of the failure from the new communicator
	}
	if m := decodeSubset(buf); m.kind != subsetGo {
		return s.gaveUp(m)
	}
	return nil
}

// leave ends the part of a member that gave up before it had the id.
func (s *subset) leave(r *engine.Request, buf []byte) {
	<-r.Done()
	if r.Err() != nil || s.tell(subsetMsg{kind: subsetQuit, rank: uint32(s.parent.rank)}) != nil {
		return
	}
	if decodeSubset(buf).kind == subsetID {
		s.drain()
	}
}

// drain receives the leader's last message.
func (s *subset) drain() {
	if r, _, err := s.listen(); err == nil {
		<-r.Done()
	}
}

// start starts a message to or from a member.
func (s *subset) start(kind wire.CallKind, member int, buf []byte) (*engine.Request, error) {
	r, err := s.parent.job.StartMessage(s.parent.id, engine.Message{
		Kind: kind, Peer: s.ranks[member], Tag: s.tag, Buf: buf,
	})
	return r, exportError(err, s.parent.members)
}

// tell sends a message to the leader.
func (s *subset) tell(m subsetMsg) error {
	_, err := s.start(wire.Send, 0, m.encode())
	return err
}

// listen starts to receive a message of the leader.
func (s *subset) listen() (*engine.Request, []byte, error) {
	buf := make([]byte, subsetMsgSize)
	r, err := s.start(wire.Recv, 0, buf)
	return r, buf, err
}

// await waits for a message. It does not withdraw it.
func (s *subset) await(ctx context.Context, r *engine.Request) error {
	r.Wait(ctx)
	if !r.Over() {
		return ctx.Err()
	}
	return exportError(r.Err(), s.parent.members)
}

// gaveUp is the error of a Subset that another rank gave up.
func (s *subset) gaveUp(m subsetMsg) error {
	if int(m.rank) >= len(s.parent.members) {
		return fmt.Errorf("allcast: %w: an unknown rank gave up", ErrProtocol)
	}
	name := rankName(s.parent.members[m.rank], s.parent.members)
	return fmt.Errorf("allcast: %w: %s gave up", ErrAborted, name)
}
