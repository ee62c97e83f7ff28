// Package datapath moves the bytes of collectives between the network and the users' buffers. Package
// control tells it what to do, and it reports to control through a Sink.
//
// # Goroutines
//
// One goroutine at a time runs control. It owns the state of an Operation that is not atomic: it calls
// StartRound, the methods of Operation, and Accept for each Event. Whoever reports an event passes it to
// the Sink, which queues it; control hands it back to Accept before it tells the node.
//
// One receive worker per subgroup owns the fast path (receiver.go). It is a mcast.Intake and its I/O:
// the Intake decides where a payload belongs and records the chunk (package place), the worker moves the
// bytes. The worker reports when its queue is empty or enough chunks came in. Where the kernel
// receives, the worker learns from the shared record which chunks the kernel has placed (placer.go).
// The poller runs the worker of the first subgroup, and goroutines of their own run the others.
//
// Whoever reads a connection places its data (incoming.go): the answer of a read, or a piece of a
// point-to-point operation, which is placed or added to a sum (pieces.go, sums.go). The node only hears
// how far the operation is.
//
// The sender multicasts straight from the users' buffers (sender.go). A goroutine that polls the
// network sends as well, but never blocks: if the network has no room, the send worker sends the rest.
//
// No worker takes a lock per datagram. All communicators and operations share the workers, datagram by
// datagram.
//
// # Who may touch a buffer
//
// The slot of a free chunk belongs to its receive worker. A read writes only chunks that the worker has
// claimed for it: the read goes from control to the worker, which claims the chunks, back to control,
// which asks the peer for those that were won, and to the reader of the connection. When an operation is
// complete, all its chunks are in place and nobody writes to them again. No worker has to be told
// before the buffer is the user's. A stage that the kernel fills stays with the operation until the
// worker has closed its placements.
//
// A failed operation is reported as Quiesced only once nothing can touch its buffers. The send worker
// and the receive workers have answered, puts and reads by the fabric have ended, a registration or a
// digest under way has ended, and every goroutine that was writing data of a connection has left
// (pins.go). A caller that gives up waits for the same.
package datapath
