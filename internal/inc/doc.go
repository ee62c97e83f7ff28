// Package inc is in-network reduction: a Reduce-Scatter whose sums are made by a tree of aggregators,
// programs next to the switches. A rank sends its contributions up once, each aggregator sends one sum up,
// and the owner of a block receives one copy. Both sides are state machines without I/O: an [Op] runs on a
// rank, a [Session] on an aggregator.
//
// # Order
//
// A Reduce-Scatter is a multicast Allgather backwards: each block comes from all ranks to its owner. Blocks
// are cut into chunks, and all chunks have a place in one order ([Layout]): the first chunk of every block,
// then the second chunk of every block, and so on. All ranks send in this order. A rank does not send its
// own block; it adds its own contribution last.
//
// # Window
//
// An owner grants the places before its first missing chunk, plus the window W. The control tree of the
// communicator computes the minimum of all grants, and no rank sends a place at or above it. A contribution
// for place k therefore proves that the owners have all places up to k-W. An aggregator has W slots per
// communicator, and place k uses slot k mod W. A newer place takes the slot of an older one, and an older
// place never reopens a slot.
//
// # Loss
//
// A contribution is identified by its operation, place and child. A slot remembers which children have
// contributed, so duplicates do no harm. A complete slot keeps its sum until a newer place takes it.
//
// An owner that misses a chunk asks all ranks, reliably, to send their contributions again. The request
// has a number, its try, and so have the contributions that follow. An aggregator sends a complete sum
// again when the first contribution of a later try arrives, once per try. One try therefore heals a loss at any
// hop, and costs each link one datagram. It also rebuilds the slots of an aggregator that was restarted.
//
// Most contributions to a missing sum have arrived. In the first tries, ranks therefore offer theirs in a datagram
// without payload, and an aggregator asks for those that it misses. Apart from that, an offer is the contribution: what
// it leads to is a contribution that comes later, or is lost. Later tries send contributions at once.
//
// Ranks send in order, so a sum proves that all ranks have sent the places before it. The owner asks for
// those that are missing after a short grace. Nothing proves that later places were sent: a rank may be slow.
// After a pause, the owner asks for a few of them, and for more only if that helps.
//
// After several tries for a chunk, its owner fetches the contributions of that chunk point to point. If no
// sums arrive at all, or a connection to an aggregator is lost, all ranks stop sending, and every owner
// fetches what it misses. Fetching needs no help: all inputs can be read until the last owner has
// everything. The owner adds fetched contributions as the tree would have done ([Tree.Combine]), so the
// result has the same bits.
//
// Sums may also arrive far too slowly. While sums are behind, the owner fetches a chunk now and then to compare. If
// sums take several times as long as fetches would, for longer than the limit of silence, it gives up the aggregators
// too. An operation thus takes a bounded time.
//
// A fetch ends only if all ranks respond. An owner blames the aggregators only after a fetch: until then, a
// rank may be the reason for the silence.
//
// # Phases
//
// In the barrier all ranks report that they are ready, and whether their aggregators are. If one is not,
// owners fetch everything. After the transfer, a handshake tells all ranks that every owner has its sum.
// Only then do inputs go back to their users.
//
// A communicator has one operation in transfer at a time. The number of an operation counts the reductions of its
// communicator, so an aggregator can tell a new operation from an old one.
//
// # Why slots never mix
//
// A sum consists of contributions to one place of one operation, because a slot belongs to one place of one
// operation. No owner needs what a newer one displaces:
//
//   - A rank sends place k only below the minimum of all grants. The owner of place k-W has then granted more
//     than k, so it has that place. An aggregator may have more slots than W, but not fewer: W is the minimum of
//     all aggregators.
//   - A rank starts operation n+1 when the handshake of operation n has ended on this rank. All owners have
//     their sums then, and its own driver sends nothing of operation n any more.
//   - What the network still holds is older than what the slot has, and an older place never takes a slot.
//
// An aggregator that lost its slots may open one for an old duplicate. It needs all children to complete it. If
// they all come, the sum is the same as before, and its owner has that chunk already, or ended the operation.
//
// # Why nothing deadlocks
//
// Messages between ranks are reliable, so the barrier and the handshake end if the transfer does. Suppose that an
// owner misses chunks.
//
//   - If places below the minimum of all grants are missing, a timer of their owner runs: it asks for them. After a
//     bounded number of tries or a bounded time, it fetches them. Fetches need neither aggregators nor credit, and
//     every rank serves them until the handshake ends.
//   - If none are missing, every owner's grant is at least the minimum plus W, or complete. Each rank on the way to the
//     top withholds an increase below a quantum, so the top knows of at least W less a quantum per level of the control
//     tree. The quantum is smaller than W divided by the levels, so the minimum rises.
//   - Once aggregators are given up, owners fetch everything that is missing, without waiting for anything else.
//
// Each operation therefore ends while all ranks live, whatever aggregators and datagrams do. Package node ends
// operations of lost ranks.
package inc
