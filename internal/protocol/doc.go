// Package protocol is the paper, sans-IO: one multicast collective (an [Op]) on
// one rank. Time, datagrams, messages and memory belong to the driver; an Op is
// a state machine that is told what happened and answers with what to do:
//
//	actions = op.Step(now, event, actions[:0])
//
// # Life of an Op
//
// RNR barrier: all ranks are ready to receive before anyone sends (barrier.go).
// Multicast: the active rank of each chain sends its block, then its successor
// does (chain.go, sender.go); whatever arrives is placed by its PSN and noted in
// a bitmap (receiver.go). Fetch: what is still missing when the cutoff passes
// (cutoff.go) is read from the left neighbour on the ring (fetch.go). Final
// handshake: a rank that has everything tells its left neighbour, and may return
// once its right neighbour has told it the same. A rank then lingers without
// buffers until it has relayed what others need (tree.go), and is closed.
//
// # Why a buffer is free when the Op completes
//
// An Op completes on rank r when (1) every chunk is placed, (2) r's own
// multicasts have left the buffer, and (3) r holds the Final of its right
// neighbour. Nothing can then touch r's buffers:
//
//   - Nobody writes. A datagram is placed only in a slot whose bit is clear, and
//     all bits are set. A read of ours writes only slots marked busy; a slot's bit
//     is set when its read ends and not before, and a datagram for a busy slot is
//     dropped. So "all bits are set" implies "no read is under way".
//   - Nobody reads. Only the right neighbour ever reads from r: every rank asks
//     its left neighbour, and nobody else. It sends Final when all its bits are
//     set, so by the same argument it has no read under way, and it starts none
//     later, because it misses nothing.
//   - Our own sends are over by (2).
//
// With an error, the driver is first told to quiesce the Op (package node): it
// revokes the buffers, and only then is the user told.
//
// # Why a stale chunk is never accepted
//
// An immediate names a slot (see [Layout]) and a PSN. Slot s is used by the Ops
// s, s+K, s+2K, ... of a communicator, K slots in all. Let X and Y = X+K be two
// users of one slot on rank r.
//
//   - Each chunk of X is multicast exactly once; repairs go over reliable reads.
//   - When X completes on r, r holds every chunk of X. It got each one from a
//     datagram, which was sent by then, or by a read; a read is only asked for
//     after its owner announced the chunk as sent. So every datagram of X had been
//     handed to the network by then.
//   - r enters Y's barrier only when X is closed on r and the fabric has said that
//     X is drained there (package node): that no datagram sent before X completed
//     on r can still arrive, be it from the network or from r's receive queue. A
//     fabric whose datagrams carry a token per operation drops those of X by it; one
//     without waits for the network's maximum packet lifetime and then for its
//     receive queue to have been emptied once.
//   - Before r enters Y's barrier, r has no Op in that slot and drops what names
//     it; and nobody sends chunks of Y before r has entered.
//
// So a chunk that names slot s while Y is open on r was sent for Y. An aborted Op
// never frees its slot: its communicator is broken and takes no further calls.
package protocol
