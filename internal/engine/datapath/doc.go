// Package datapath moves the bytes of collectives between the network and the users' buffers. Package
// control tells it what to do, and it reports to control through a Sink.
//
// # Goroutines
//
// One goroutine at a time runs control. It owns the state of an Operation that is not atomic: it calls
// StartRound, the methods of Operation, and Accept for each Event. Whoever reports an event passes it to
// the Sink, which queues it; control hands it back to Accept before it tells the node.
//
// A receiver owns the fast path of one stream (receiver.go). It is a mcast.Intake and its I/O: the
// Intake decides where a payload belongs and records the chunk (package place), the receiver moves the
// bytes. It reports when its queue is empty or enough chunks came in. Where the kernel receives, it
// learns from the shared record which chunks the kernel has placed (placer.go).
//
// Workers run the receivers: as many as this rank's share of the machine has processors (Config.Cores),
// and no more than there are streams. Worker i of W serves the streams t with t mod W = i, for good. A
// worker is a poller with an epoll instance of its own. The first worker is the poller that goroutines
// in Wait lead, so with one processor nobody else has to be woken. Where the kernel places chunks, it
// is the only one. Networks without pollers have one goroutine per receiver.
//
// From the socket to the user's buffer, workers share no lock, no goroutine and no cache line that one of
// them writes. A stream has its own socket, queue, Intake, record of chunks and count of taken datagrams;
// the record and the counts fill whole cache lines. Workers meet when they report to control, once per
// empty queue or every few super-packets.
//
// The room of a process for credit is that of one receive queue (package mcast), although each stream
// has as much. Streams therefore never overflow together, and their room beyond that stays unused.
//
// Whoever reads a connection places its data (incoming.go): the answer of a read, or a piece of a
// point-to-point operation, which is placed or added to a sum (pieces.go, sums.go). The node only hears
// how far the operation is.
//
// Senders multicast straight from the users' buffers (sender.go), one per processor and at most one per
// subgroup: a rank sends to one stream of each subgroup at a time. A goroutine that polls the network
// also does the work of the first sender, but never blocks: if the network has no room, the send worker
// sends the rest.
//
// With aggregators (aggregation.go), one more goroutine sends contributions straight from the users' buffers, and
// another one receives sums, adds this rank's contribution, and records the chunk. A goroutine that polls the
// network also receives sums; a lock of the port makes sure that one of them does at a time. Sums that aggregators
// do not deliver are made from the inputs of all ranks, by the goroutine that reads the last input (fetch.go).
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
// before the buffer is the user's. In a reduction by aggregators, the goroutine that receives a sum or asks for
// inputs takes or claims the chunk in the record before anybody writes it. A stage that the kernel fills stays with
// the operation until the worker has closed its placements.
//
// A failed operation is reported as Quiesced only once nothing can touch its buffers. The send workers
// and the receive workers have answered, puts and reads by the fabric have ended, a registration or a
// digest under way has ended, and every goroutine that was writing data of a connection has left
// (pins.go). A caller that gives up waits for the same.
package datapath
