// Package mcast is the paper, sans-IO: one multicast collective (an [Collective]) on
// one rank. Time, datagrams, messages and memory belong to the driver; a Collective is
// a state machine that is told what happened and answers with what to do:
//
//	actions = op.Step(now, event, actions[:0])
//
// # Life of a Collective
//
// RNR barrier: all ranks are ready to receive before anyone sends (barrier.go).
// Multicast: the active rank of each chain sends its block, then its successor
// does (chain.go, sender.go). A receive worker places each chunk by its PSN and
// records it (intake.go, placement.go); the Collective infers from these records what was
// sent (arrivals.go). Fetch: chunks that are still missing when the cutoff passes
// (cutoff.go) are read from the left neighbour on the ring (fetch.go). Final
// handshake: a rank that has everything tells its left neighbour, and may return
// once its right neighbour has told it the same. A rank then lingers without
// buffers until it has relayed what others need (tree.go), and is closed.
//
// # One record of chunks
//
// A [Placement] is the only record of which chunks of a subgroup are free, claimed or
// in place; package place says who may change it. The receive worker, reads of the
// slow path and a program in the kernel write it. The Collective reads it and keeps no
// copy. It keeps only what the record does not say: which chunks senders are known to
// have sent, and which chunks the neighbours were asked for or have offered.
//
// An [Intake] is the receive worker without its I/O. All drivers use it the same way:
// they hand it datagrams one by one or in batches, hand its reports to the Collective when
// these arrive ([Collective.Placed]), and let it claim chunks before they read them.
//
// # Why a buffer is free when the Collective completes
//
// A Collective completes on rank r when (1) every chunk is in place, (2) r's own
// multicasts have left the buffer, and (3) r holds the Final of its right
// neighbour. Nothing can then touch r's buffers:
//
//   - Nobody writes. A receive worker writes only to slots of free chunks, and of
//     chunks that it has claimed and places before it does anything else. A program in
//     the kernel writes only chunks that it has claimed. A read of ours writes only
//     chunks that the worker has claimed for it. They are in place when the read
//     ends, and not before. A chunk in place is never written again. So "every chunk
//     is in place" implies "no read is under way".
//   - Nobody reads. Only the right neighbour ever reads from r: every rank asks
//     its left neighbour, and nobody else. It sends Final when all its chunks are in
//     place, so by the same argument it has no read under way, and it starts none
//     later, because it misses nothing.
//   - Our own sends are over by (2).
//
// With an error, the driver is first told to quiesce the Op (package node): it
// revokes the buffers, and only then is the user told.
//
// # Why a stale chunk is never accepted
//
// An immediate names a slot (see [wire.Layout]) and a PSN. Slot s is used by the Collectives
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
//   - Before r enters Y's barrier, r has no Collective in that slot and drops what names
//     it; and nobody sends chunks of Y before r has entered.
//
// So a chunk that names slot s while Y is open on r was sent for Y. An aborted Collective
// never frees its slot: its communicator is broken and takes no further calls.
package mcast
