// Package verbs is the fabric on InfiniBand and RoCE, through libibverbs. It is there
// with the build tag "verbs" only: without it nothing of the package but this page is
// compiled, and no RDMA header is needed.
//
// # The fast path
//
// A communicator has one UD queue pair a subgroup, in a multicast group of its own, so that
// a rank does not receive what is for others. Those of a subgroup share two completion
// queues and a staging ring (a shared receive queue), and so one receive worker: memory and
// threads do not grow with communicators. The job's own is there from Join on; when a
// communicator's cannot be made, its datagrams go there, where everybody listens.
//
// The protocol's 32-bit immediate goes where it belongs, in SEND_WITH_IMM. The operation's
// token and the communicator travel as the first 12 bytes of the payload, gathered from a
// header ring of ours, while the chunk behind them is gathered from the user's memory: no
// byte of it is copied. A queue pair for each communicator alone would not do without the
// token: a communicator has many operations, and a slot of the immediate many users. With
// it, a datagram of an operation that is over is dropped whatever is still in a queue
// (package protocol, "Why a stale chunk is never accepted"), and so is a stranger's.
//
// A batch of datagrams is posted with one doorbell, and only its last one is signalled.
// Receives point into a staging ring; the engine places chunks out of it, and slots are
// posted again a batch at a time by the call that looks for the next completions. So a
// batch costs one call into C, and none allocates.
//
// Nobody spins without end: a worker looks at its completion queue for a bounded number of
// times, then asks for a completion event and sleeps in Go's poller.
//
// # The slow path
//
// Every peer has an RC queue pair: ring neighbours, barrier partners, and whomever
// point-to-point algorithms and communicators to come need, since after the rendezvous there
// is nobody to ask for a number. Their numbers travel in its cards.
// Frames (frame.go) are sent into slots that the peer has posted; each frame says how many
// it has posted by now, and nobody sends beyond that, so "receiver not ready" does not
// happen and its timers do not matter.
//
// A fetch is an RDMA READ straight into the user's receive buffer (read.go). The peer is
// asked once an operation where its buffer is; and after each read, whether it was still
// registered: only then the bytes count. See "Who may read" there.
//
// A peer that died shows as RETRY_EXC_ERR of whatever was sent to it, after some seconds
// (linkTimeout, linkRetries). Of a silent one, eight bytes are read every second, which only
// its device takes notice of.
package verbs
