// Package verbs is the fabric on InfiniBand and RoCE, through libibverbs. It is there
// with the build tag "verbs" only: without it nothing of the package but this page is
// compiled, and no RDMA header is needed.
//
// # The fast path
//
// A communicator has one UD queue pair per subgroup, in a multicast group of its own, so that
// a rank does not receive data for others. The queue pairs of a subgroup share two completion
// queues and a staging ring (a shared receive queue), and therefore one receive worker: memory
// and threads do not grow with communicators. The job's own is there from Join on. When a
// communicator's cannot be made, its datagrams go to the job's group, where everybody listens.
//
// The protocol's 32-bit immediate goes where it belongs, in SEND_WITH_IMM. The operation's
// token and the communicator travel as the first 12 bytes of the payload, gathered from a
// header ring of ours, while the chunk behind them is gathered from the user's memory: no
// byte of it is copied. A queue pair for each communicator alone would not do without the
// token: a communicator has many operations, and a slot of the immediate many users. With
// it, a datagram of an operation that is over is dropped whatever is still in a queue
// (package protocol, "Why a stale chunk is never accepted"), and so is a stranger's.
//
// A batch of datagrams is posted with one doorbell, and only its last one is signalled. Send
// posts a batch while the device still has others: up to four per subgroup, each with header
// slots and copy slots of its own. The id of a work request names its batch, so that batches of
// several queue pairs may complete in any order. A queue pair whose send failed is brought back
// (recover.go).
//
// Receives point into a staging ring; the engine places chunks out of it, and slots are
// posted again a batch at a time by the call that looks for the next completions. A batch
// therefore costs one call into C on each side, and none allocates.
//
// Nobody spins without end: a worker polls its completion queue for a bounded number of
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
// A fetch is RDMA READs straight into the user's receive buffer, one per part (read.go). The peer
// is asked once per operation where its buffer is; and once after each fetch, whether the buffer
// was still registered: only then the bytes count. See "Who may read" there.
//
// A peer that died shows as RETRY_EXC_ERR of whatever was sent to it, after some seconds
// (linkTimeout, linkRetries). Of a silent one, eight bytes are read every second, which only
// its device takes notice of.
//
// # Registration
//
// The engine's control loop calls Register, Unregister, Put and Cancel. Pinning memory takes
// long, so goroutines register and deregister it (register.go, put.go, memory.go). Frames to one
// peer stay in order: messages and pieces wait behind a piece that is being registered.
//
// # Failures
//
// A goroutine per open device reads its asynchronous events, and tells the owner of an object
// that failed (async.go). A goroutine per group that rdma_cm joined sees that it stays joined
// (keep.go).
package verbs
