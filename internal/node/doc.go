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
// passing it on once. It reaches every survivor: take the survivors that are
// connected by those edges; if they are not all there is, going left on the ring
// from them one comes to a rank outside, which must be dead, and the survivor
// right of it is watching it. A communicator that lost a member is broken: each
// call on it that has not completed fails with an [Error] that names a rank that
// really failed, and so does every later call. Completed calls stay completed.
//
// A call that passes its deadline asks the rank it waits for what that one waits
// for, and so on, until the rank is found that everybody waits for (trace.go).
//
// Before a failed call is reported, the driver is asked to quiesce it: to stop
// sending from its buffers, reading into them, and letting others read from them.
// A neighbour's read that is refused ends in that neighbour's own failure, never
// in wrong data.
package node
