package node

import "github.com/allcast/allcast/internal/mcast"

// Groups says at which ranks the datagrams of a communicator arrive, and fill receive queues.
type Groups uint8

const (
	// GroupsApart means that no datagram reaches a rank outside of its communicator.
	GroupsApart Groups = iota
	// GroupsShared means that the datagrams of all communicators reach all ranks.
	GroupsShared
	// GroupsOwn is GroupsShared for communicators that call ShareGroups, and GroupsApart for others.
	GroupsOwn
)

// A chunk that also reaches ranks outside of its communicator takes room in queues of ranks that did not
// lend it. The members pay for that, so that no rank has to know of others' communicators. A chunk of a
// communicator with m of the n ranks costs each member n/m places instead of one.
//
// With GroupsShared, all windows together then fit any queue. Let W be the window of a communicator: the
// chunks that may be on their way at a time. Each of its members lends W*n/m places, so over all members they
// are n*W. All n ranks together lend at most n*room places. The sum of all windows is therefore at most room,
// and no queue receives more than that sum. A rank with more room than another one pays more in proportion.
//
// With GroupsOwn, a queue receives the windows of the rank's own communicators as well. These cost 4/3 of a
// place, and shared ones 4*n/m. Take three quarters of what this rank lends, and a quarter of what the
// average rank lends. The former counts the communicators with groups of their own in full, the latter the
// shared ones, and both together the communicators of all ranks. The sum is again at most room.
//
// A window moves on when all members have consumed its chunks. A rank outside of the communicator is not
// asked. If it takes longer to read its queue than the members, the queue may still overflow, and the rank
// fetches what it lost.
const (
	ownShare    = 3 // part of the room, in quarters, for communicators with groups of their own
	sharedShare = 1 // part of the room, in quarters, for communicators that share the job's groups
)

// room returns the room that a chunk of a communicator takes on each member, and the pool of rounds that the
// kernel receives. In a round of a shared communicator, other ranks may receive the chunks themselves.
func (n *Node) room(c *comm) (mcast.Charge, *mcast.Pool) {
	size, members := n.cfg.Size, len(c.members)
	if c.shared && n.cfg.MinRoom > 0 { // other ranks may have less room than this one
		size = int(max(uint64(size), (uint64(size)*n.cfg.Room+n.cfg.MinRoom-1)/n.cfg.MinRoom))
	}
	switch own := n.cfg.Groups == GroupsOwn; {
	case c.shared && own:
		return mcast.ChargeOf(size*(ownShare+sharedShare), members*sharedShare), n.pool
	case c.shared:
		return mcast.ChargeOf(size, members), n.pool
	case own && members < size:
		return mcast.ChargeOf(ownShare+sharedShare, ownShare), n.offloadPool
	}
	return mcast.ChargeOf(1, 1), n.offloadPool
}

// ShareGroups says that the datagrams of a communicator reach all ranks. All members call it before one of
// them multicasts.
func (n *Node) ShareGroups(comm uint32) {
	if c := n.comms[comm]; c != nil {
		c.shared = len(c.members) < n.cfg.Size
	}
}
