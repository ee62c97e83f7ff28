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
// After several tries for a chunk, its owner fetches the contributions of that chunk point to point. If no
// sums arrive at all, or a connection to an aggregator is lost, all ranks stop sending, and every owner
// fetches what it misses. Fetching needs no help: all inputs can be read until the last owner has
// everything. The owner adds fetched contributions as the tree would have done ([Tree.Combine]), so the
// result has the same bits.
//
// # Phases
//
// In the barrier all ranks report that they are ready, and whether their aggregators are. If one is not,
// owners fetch everything. After the transfer, a handshake tells all ranks that every owner has its sum.
// Only then do inputs go back to their users.
//
// A communicator has one operation in transfer at a time. The number of an operation counts the reductions of its
// communicator, so an aggregator can tell a new operation from an old one.
package inc
