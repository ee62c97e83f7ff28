// Package node is one process, sans-IO: its communicators, the operations in
// flight on them, their identity and order, the room for datagrams they share,
// the liveness of its peers, and abort. Like package protocol it knows no clock,
// socket or goroutine: a driver calls the methods of [Node] with what happened
// and carries out what [Node.Actions] returns.
//
// # Identity and order
//
// The order of Start calls on a communicator, the same on all ranks, numbers its
// operations. A call that does not fit an immediate's PSNs takes several numbers
// and runs as that many rounds, one after the other. Calls run concurrently, up to
// Config.InFlight, and finish in any order. The calls in flight on a rank are
// always the oldest that have not completed there, so the oldest of all is in
// flight everywhere and nothing waits in a circle.
//
// # Failure
//
// Every call ends. A process watches its left neighbour on the ring of all living
// processes: silence for Config.Timeout, or a closed connection, and it is
// declared lost. The news spreads along ring and barrier edges, each process
// passing it on once; and whoever gets a new neighbour on the ring of the living
// tells it all the deaths it knows. So it reaches every survivor, however many
// died at once: a survivor whose left neighbour is dead notices, goes on to the
// next, and ends up watching the nearest living one, which it then tells; that
// one learns who its right neighbour is now and tells it in turn what it knows.
// Along the ring of the living all news passes in both directions; the barrier
// edges only make it faster. (The edges of the ring of all and of the barrier
// alone are not enough: with five ranks of which 0 and 3 die, rank 4
// has no living peer, would go on sending its heartbeats to 0, and be taken for
// dead by 1.) A communicator that lost a member is broken: each call on it that
// has not completed fails with an [Error] that names a rank that
// really failed, and so does every later call. Completed calls stay completed.
//
// A user breaks a communicator on purpose with [Node.Abort], or with [Node.Cancel] when a
// caller gives up: the error on all ranks then names the rank that did. A communicator that
// was being made when its parent broke takes over the parent's verdict ([Node.Disown], and
// [Node.Inherit] where it stays in use), so that members that use it already do not blame a
// healthy rank.
//
// A call that passes its deadline asks the rank it waits for what that one waits
// for, and so on, until one is found that has not made the call or does not answer
// (trace.go). If there is none, nobody failed and the deadline was too short: the
// error then names no rank.
//
// The survivors of a broken communicator can agree on who they are and get a new one of
// themselves ([Node.Agree], package agree). Deaths that one of them knows of are told
// to the others on the way; attempts are numbered like calls. A rank that was taken
// for lost and lives learns that it is out, by being told of its own death.
//
// A communicator that its user has closed ([Node.RemoveComm]) is forgotten when no call
// of it is under way and no other rank needs us to complete one. Messages for it are
// ignored then, except that who begins something that we never will hears so.
//
// Before a failed call is reported, the driver is asked to quiesce it: to stop
// sending from its buffers, receiving and reading into them, and letting others read
// from them. What cannot be recalled, such as an RDMA READ, the driver waits for.
// A neighbour's read that is refused ends in that neighbour's own failure, never
// in wrong data.
package node
