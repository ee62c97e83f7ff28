// Package engine runs a node over a real fabric: it is the threads, the queues
// and the I/O that packages node, protocol and p2p do without.
//
// At most one goroutine runs the node at a time (control.go). Everything that happens becomes a
// task on a lock-free queue: calls of the application, messages from peers, reports of the
// workers, the clock. Whoever enqueues a task also drains the queue, unless another goroutine is
// already draining it; actions are carried out in order. When there is nothing to do, nothing runs.
// Work that takes long runs elsewhere: registering memory, joining multicast groups, summing up or
// averaging a large result.
//
// A goroutine blocked in Wait polls the network itself, with a fabric.Poller (wait.go). The first
// subgroup's receive worker then has no goroutine of its own: whoever polls does its work.
//
// # Receiving
//
// A receive worker per subgroup owns the fast path (recv.go). It is a protocol.Intake and its I/O:
// the Intake decides where a payload belongs and records the chunk (package place), the worker moves
// the bytes and hands over reports when its queue is empty or enough came in. Where the kernel
// receives, the worker learns from the shared record what the kernel has placed (place.go).
//
// Data from connections never passes through the node. Whoever reads a connection puts the answer
// of a read in place (reads.go, transfer.go), and places a piece of a point-to-point operation or
// adds it to a sum (pieces.go, sums.go). The node hears how far the operation is.
//
// # Sending
//
// The sender multicasts straight from the users' buffers (send.go). A goroutine that polls the
// network sends as well, but never blocks: when the network has no room, it leaves the rest to the
// send worker.
//
// No worker takes a lock per datagram, and all communicators and operations share the workers,
// datagram by datagram.
//
// # Who may touch a buffer
//
// The slot of a free chunk belongs to its receive worker. A read writes only chunks that the worker
// has claimed for it. When an operation is complete, all its chunks are in place, and nobody writes
// to them again: no worker has to be told before the buffer is the user's. A stage that the kernel
// fills stays with the operation until the worker has closed its lanes.
//
// A failed operation is reported only once nothing can touch its buffers (quiesce in act.go). The
// send worker and the receive workers have answered, puts and reads by the fabric have ended, a
// registration or a sum under way has ended, and every goroutine that was writing data of a
// connection has left (pins.go). A caller that gives up waits for the same (Request.Cancel).
//
// A call counts as a user of the memory of Alloc that it was given, until its request ends. Free
// refuses memory that has users (alloc.go).
//
// A reduction neither changes nor copies its input, unless it works in place. Sums that only pass
// through this rank are made in scratch memory, which is kept for the next reduction (scratch.go).
package engine
