// Package node implements one process without I/O: its communicators, the operations in flight on
// them, their identity and order, the room for datagrams that they share, the liveness of peers, and
// abort. Like package mcast it uses no clock, socket or goroutine. A driver reports events through
// the methods of [Node] and executes the actions that [Node.Actions] returns.
//
// # Identity and order
//
// The order of Start calls on a communicator is the same on all ranks and numbers its operations. A
// call that does not fit an immediate's PSNs takes several numbers and runs as that many rounds, one
// after the other. Calls run concurrently, up to Config.InFlight, and finish in any order. The calls
// in flight on a rank are always the oldest that have not completed there. The globally oldest call
// is therefore in flight on every rank, and there is no circular wait.
//
// # Reductions by aggregators
//
// A Reduce-Scatter by aggregators is one round (package inc). An Allreduce adds rounds of a multicast Allgather. The
// reductions of a communicator have numbers of their own, and run one after the other: an aggregator has slots for one
// of them. Other calls may overtake those that wait.
//
// The driver reports whether this rank can use its aggregators ([Node.SetAggregation]). A reduction needs the
// aggregators of all ranks. Without them, owners fetch all contributions, and so they do after a failure in the middle
// of a reduction. If a rank is connected to its aggregator but sums do not arrive, the rank does not use the aggregator
// for inc.RetryAfter, and then tries again.
//
// # Failure
//
// Every call ends. A process watches its left neighbour on the ring of all living processes. It
// declares the neighbour lost after Config.Timeout without a message, or when the connection closes.
// The death notice spreads along ring and barrier edges; each process forwards it once. In addition, a
// process that gets a new neighbour on the ring of the living tells it all the deaths it knows.
//
// Hence every survivor learns of every death, however many ranks die at once. A survivor with a dead
// left neighbour notices, moves on to the next rank, and ends up watching the nearest living one. It
// tells that rank. That rank learns which rank is now its right neighbour, and tells it what it knows
// in turn. All notices therefore pass along the ring of the living in both directions; the barrier
// edges only make this faster. The edges of the original ring and of the barrier alone are not
// enough: with five ranks of which 0 and 3 die, rank 4 has no living peer. It would keep sending its
// heartbeats to 0, and rank 1 would declare it dead.
//
// A communicator that has lost a member is broken. Each call on it that has not completed fails with
// an [Error] that names a rank that really failed, and so does every later call. Completed calls stay
// completed.
//
// A user breaks a communicator on purpose with [Node.Abort], or with [Node.Cancel] when a caller gives
// up. The error on all ranks then names the rank that did so. A communicator under construction takes
// over the verdict of its broken parent ([Node.Disown], and [Node.Inherit] where it stays in use).
// Members that already use it therefore do not blame a healthy rank.
//
// A call that passes its deadline asks the rank it waits for which rank that one waits for, and so on
// (trace.go). The search ends at a rank that has not made the call or does not answer. If there is no
// such rank, no rank failed and the deadline was too short; the error then names no rank. Each call may have a
// deadline of its own ([Node.SetDeadline]), and any unfinished call may pass it, not only the oldest.
//
// The survivors of a broken communicator can agree on their membership and get a new communicator
// ([Node.Agree], package agree). They exchange the deaths they know in the process. Attempts are
// numbered like calls. A living rank that was declared lost learns of its exclusion from the notice of
// its own death.
//
// The node forgets a communicator some time after its user has closed it ([Node.RemoveComm]). It waits
// until no call is in flight and no other rank needs this one to complete a call. It then ignores messages for it,
// with one exception: it answers greetings, requests and probes, whose senders may wait for a call that this rank will
// never make. For each operation, the sender knows whether it still lacks something of this rank (Awaits). If it does,
// the communicator breaks. If not, the greeting was late, and the answer changes nothing.
//
// This answer ends a call only if each operation greets the ranks that it waits for. The plans of package p2p
// do, and so do the barriers of mcast and inc. A rank that breaks a communicator also tells the ranks that have
// greeted it for calls which it has not made: they may have no other neighbour left.
//
// Before the node reports a failed call, it asks the driver to quiesce the call. The driver stops
// sending from the call's buffers, receiving and reading into them, and letting other ranks read from
// them. It waits for transfers that cannot be revoked, such as an RDMA READ. A refused read fails the
// neighbour's own call; it never produces wrong data.
//
// # Cancellation
//
// A blocking call whose context ends aborts its communicator ([Node.Cancel]). It takes the path of
// every other failure, with a reason of its own:
//
//  1. If the operation has completed by then, nothing is aborted, and the call returns its result.
//  2. Otherwise the node breaks the communicator and sends the verdict, which names this rank, to the
//     members that it knows. Each member passes the verdict on before it acts on it.
//  3. Each rank quiesces every unfinished operation of the communicator.
//  4. Only then do the calls return. On the rank that gave up, the error also matches the context's
//     error, and later calls on the communicator return the same error at once.
//
// A context that has ended before the call starts nothing, and Request.Wait never aborts anything.
package node
