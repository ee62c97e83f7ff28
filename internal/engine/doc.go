// Package engine runs a node over a real fabric: it is the threads, the queues
// and the I/O that packages node, protocol and p2p do without.
//
// One goroutine at a time runs the node (control.go). Everything that happens becomes a
// task on a lock-free queue: calls of the application, messages and data from peers,
// reports of the workers, the clock. Whoever brings a task does what is queued, unless
// somebody is at it already; actions are carried out in order. When there is nothing to
// do, nothing runs.
//
// Who waits for a call serves the network meanwhile, with a fabric.Poller: wait.go. The
// first subgroup's receive worker is then no goroutine, but whoever does that.
//
// Receive workers, one a subgroup, own the fast path: each has the bitmaps of its
// subgroup for itself (protocol.Lane), places payloads, and reports runs of chunks
// when its queue is empty or enough came in. The send worker multicasts straight from
// the user's buffers. None of them takes a lock, and all communicators and operations
// share them, datagram by datagram.
//
// # Who may touch a buffer
//
// A chunk's slot in the receive buffer belongs to its receive worker until the
// worker's bit for it is set. A read of the slow path places a range only after the
// worker has claimed it in its bitmap. So when an operation is complete, all bits of
// all workers are set and none of them writes again; nothing needs to be told them
// for the buffer to be the user's. When an operation fails, they are told, and it is
// reported only after each has answered, and every put has ended.
package engine
