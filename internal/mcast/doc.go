// Package mcast implements the paper without I/O: one multicast collective (a [Collective]) on one
// rank. Time, datagrams, messages and memory belong to the driver. A Collective is a state machine:
// the driver reports events, and the Collective answers with actions.
//
//	actions = op.Step(now, event, actions[:0])
//
// # Life of a Collective
//
//   - RNR barrier: all ranks are ready to receive before any rank sends (barrier.go).
//   - Multicast: the active rank of each chain sends its block, then its successor does (chain.go,
//     sender.go). Beside point-to-point operations, arrivals clock the senders (share.go). A receive
//     worker places each chunk by its PSN and records it (intake.go, placement.go). The Collective
//     infers from these records which chunks were sent (arrivals.go).
//   - Fetch: the rank reads chunks that are still missing at the cutoff (cutoff.go) from its left
//     neighbour on the ring (fetch.go).
//   - Final handshake: a rank that has every chunk tells its left neighbour. It may return once its
//     right neighbour has told it the same.
//   - Lingering: the rank keeps no buffers but still relays messages that other ranks need
//     (tree.go). Then it closes.
//
// A small collective runs as an [Eager] instead: multicast, and fetch after a loss (eager.go).
//
// # One record of chunks
//
// A [Placement] is the only record of which chunks of a stream are free, claimed or in place.
// Package place defines which party may change it. The receive worker, reads of the slow path and
// the kernel program write it. The Collective reads it and keeps no copy. It stores only what the
// record lacks: the chunks known to have been sent, and the chunks requested from or offered by
// neighbours. All drivers receive through an [Intake], pass its reports to [Collective.Placed], and
// let it claim chunks before they read them.
//
// # How a rank knows what was sent
//
// A rank fetches only chunks that were sent, and only such chunks count for credit. Three facts
// prove that a chunk was sent, and none of them costs a message per block:
//
//   - A rank sends in order: a chunk proves that all chunks before it in its block were sent.
//   - A rank passes the turn on only when it knows that its own predecessor has finished. A chunk
//     of the rank at position q of a chain therefore proves that all ranks up to q-2 have finished.
//   - When all ranks have finished, the control tree tells all of them (tree.go): at most two
//     messages per rank, for any number of chains. In a Broadcast only the ranks between the root
//     and the top of the tree have something to report.
//
// # When a chunk counts as lost
//
// The cutoff is N/B + alpha after the last progress, where N is the number of bytes still to come
// (cutoff.go). Each communicator learns B and alpha from its earlier operations ([Estimator]).
//
// A cutoff does not count while datagrams wait in a receive queue, or while a worker holds datagrams
// that it has not reported: then the worker is late, not the network. The exception ends when the
// datagrams must belong to other operations ([Collective.Queued]). It also ends after 2 s without a
// placed chunk, because the datagrams are then foreign.
//
// However much a rank has lost, its reads (fetch.go) stay far below the sixteen per operation at which
// a fabric closes the connection, so loss cannot end in "rank lost".
//
// A repair costs about one cutoff and one read. The simulator checks a bound: with up to
// 30 % loss no operation takes longer than twice its time without loss, plus six first cutoffs, plus
// twice the time that the repaired bytes take at line rate (a fifth more where the receive queue has
// less than one place per stream).
//
// # Rejected alternatives
//
//   - If each owner announced "sent" to each rank, a collective would cost P*P messages. The control
//     tree and the two inferences cost 2P.
//   - A credit counter per chain makes messages of M numbers, with M up to P. The merged order of all
//     chains needs one number (credit.go).
//   - A rank that activates its successor at the end of its block leaves a gap of one message latency
//     per step: 16 % of the time at 188 ranks and 64 KiB.
//   - A slot that is free after a fixed time is wrong: a datagram can also wait in the host's own
//     receive queue. The fabric has to say "drained".
//
// # Why a buffer is free when the Collective completes
//
// A Collective completes on rank r when (1) every chunk is in place, (2) r's own multicasts have
// left the buffer, and (3) r holds the Final message of its right neighbour. Nothing can touch r's
// buffers after that:
//
//   - Nothing writes to them. A receive worker writes only to slots of free chunks, and to slots of
//     chunks that it has claimed and places before it does anything else. The kernel program writes
//     only chunks that it has claimed. A read by r writes only chunks that the worker has claimed
//     for it; they are in place when the read ends, and not before. A chunk in place is never
//     written again. Therefore "every chunk is in place" implies "no read is in progress".
//   - Nothing reads from them. Every rank fetches from its left neighbour only, so only the right
//     neighbour ever reads from r. The right neighbour sends Final when all its chunks are in place.
//     By the same argument it then has no read in progress. It starts none later, because it misses
//     no chunk.
//   - r's own sends have ended, by (2).
//
// If the Collective fails, package node first tells the driver to quiesce it. The driver revokes the
// buffers, and only then does the call return to the user.
//
// # Why a stale chunk is never accepted
//
// An immediate names a slot (see [wire.Layout]) and a PSN. A communicator has K slots; its
// Collectives s, s+K, s+2K, ... use slot s. Let X and Y = X+K be two users of one slot on rank r.
//
//   - Each chunk of X is multicast exactly once. Repairs use reliable reads.
//   - When X completes on r, r holds every chunk of X. It received each chunk in a datagram, which
//     had been sent by then, or through a read. A rank requests a read only after the owner has
//     announced the chunk as sent. Hence every datagram of X had entered the network by then.
//   - r enters Y's barrier only after X is closed on r and the fabric has reported X as drained
//     (package node). Drained means that no datagram sent before X completed on r can still arrive,
//     neither from the network nor from r's receive queue. A fabric whose datagrams carry a token
//     per operation drops datagrams of X by their token. A fabric without tokens waits for the
//     network's maximum packet lifetime, and then until its receive queue has been empty once.
//   - Before r enters Y's barrier, r has no Collective in that slot and drops datagrams that name
//     it. No rank sends chunks of Y before r has entered.
//
// Hence a chunk that names slot s while Y is open on r was sent for Y. A failed Collective never
// frees its slot: its communicator is broken and accepts no further calls.
//
// # Why an eager collective needs no barrier
//
// An [Eager] multicasts before the other ranks have said that they are ready. Its sender does not wait for
// an answer. The communicator's [Window] bounds what that may cost a receiver:
//
//   - Room: each eager call has at most [EagerChunks] chunks. A rank sends call e only if it knows that all
//     ranks have finished call e-WindowCalls. Let m be the smallest number of finished calls of any rank.
//     No rank sends call m+WindowCalls or a later one. At most WindowCalls calls are therefore on their way to
//     any rank, in its receive queue, or among the early datagrams that its [Intake] keeps. Each queue reserves
//     that much room (EagerRoom), and ordinary collectives get the rest. A rank with several communicators may
//     receive more at once. Its queue then drops datagrams, which are fetched.
//   - Early datagrams: a receiver that has not made the call recognises the token of the next call with that
//     slot. Only holders of the job's key know this token. The Intake keeps the datagram until the call is
//     made. Calls that have begun never take early datagrams.
//   - Stale datagrams: a token belongs to one call. A fabric without tokens cannot have eager collectives,
//     because nothing would keep a late datagram out of the next call with the same slot.
//   - Buffers: the sender multicasts from a copy, and other ranks read lost chunks from that copy only. Its
//     own buffer is therefore free at once. The buffer of a receiver is free when every chunk is in place, as
//     above: nobody reads from it. The copy lives until all ranks have finished the call, because then no rank
//     misses a chunk of it.
//   - Progress: assume that all ranks make their calls. The oldest unfinished eager call e has e < m+WindowCalls
//     on all ranks that know m. The control tree distributes m whenever it passes a multiple of the quantum. A
//     sender whose window stays closed for longer asks for it. Hence every window opens.
//   - Loss: a datagram of a block proves that its owner has made the call and sends the block without a pause. A rank
//     therefore reads the other chunks of the block once they can no longer be in transit, without asking first. Of a
//     block of which nothing has arrived, the rank cannot tell whether it is lost or its owner late. At the cutoff it
//     asks the owner, once. The owner answers when it has sent the block, and the rank then reads it reliably. The
//     cutoff follows how late owners usually are, so that a quick network does not cause requests. Without loss, no
//     such message exists, unless a sender makes its call later than others' cutoffs.
//   - Leaving: a rank that closes its communicator asks all ranks to report, and stays until all have
//     finished its calls. The broken communicator needs no copies: all unfinished calls fail.
//
// Different calls are found without a barrier. Datagrams carry a tag, the lower bits of the digest, in the
// upper bits of their PSNs. A receiver with another digest rejects them. It asks the supposed owner at its
// cutoff, and the request carries the digest. A rank that took part in another protocol gets that request, or
// sends a greeting for a call that this rank has finished. Two ranks that both only send do not exchange such
// messages. They find out within a quantum of calls, or when they leave: each report of finished calls carries
// a digest of all calls up to its number.
//
// The price is a copy of at most [EagerBytes] on the sending side, and a chunk may be read from its owner once
// per rank that lost it.
package mcast
