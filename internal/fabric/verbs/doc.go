// Package verbs is the fabric on InfiniBand and RoCE, through libibverbs. Only the build tag "verbs"
// compiles it. Without the tag, the package is empty and needs no RDMA headers.
//
// # The fast path
//
// A communicator has one UD queue pair per subgroup, in a multicast group of its own, so that a rank
// does not receive the data of other communicators. The queue pairs of a subgroup share two completion
// queues and a staging ring (a shared receive queue), and therefore one receive worker. Memory and
// threads do not grow with the number of communicators. Join opens the groups of the job. If the groups
// of a communicator cannot be opened, its datagrams go to the job's group, which all ranks receive.
//
// SEND_WITH_IMM carries the protocol's 32-bit immediate. The first 12 bytes of the payload are the
// operation's token and the communicator. The device gathers them from a header ring, and the chunk
// behind them from the user's memory, so it copies no byte of the chunk. A queue pair per communicator
// does not replace the token: a communicator runs many operations, which reuse the slots of the
// immediate. With the token, a receiver drops datagrams of completed operations, even those that were
// still queued, and foreign datagrams (package mcast, "Why a stale chunk is never accepted").
//
// A batch of datagrams is posted with one doorbell, and only its last datagram is signalled. Send posts
// up to four batches per subgroup at the same time (send.go). A queue pair whose send failed is reset
// (recover.go). Receives point into a staging ring, and the engine places chunks out of it. A batch
// costs one call into C on each side, and no allocation. No worker spins without bound (completion.go).
//
// # The slow path
//
// Two ranks have an RC queue pair once one of them has sent something to the other: ring neighbours, barrier
// partners, and the partners of point-to-point algorithms. They introduce themselves by datagrams to a UD queue pair
// whose number is in the card (lobby.go, link.go). Frames (package session) are sent into slots that
// the peer has posted. Each frame says how many slots its sender has posted so far, and the receiver of
// the frame sends no more than that. "Receiver not ready" therefore does not occur, and its timers do
// not matter.
//
// A fetch is RDMA READs straight into the user's receive buffer, one per part (read.go). A rank asks the
// peer once per operation where its buffer is. After each fetch it asks whether the buffer was still
// registered: only then are the bytes valid. See "Who may read" there.
//
// The death of a peer shows as RETRY_EXC_ERR of any request to it, after some seconds (linkTimeout,
// linkRetries). From a silent peer, this rank reads eight bytes every second, which its device answers
// alone.
//
// # Registration
//
// The engine's control loop calls Register, Unregister, Put and Cancel. Pinning memory takes long, so
// goroutines register and deregister it (register.go, put.go, memory.go).
//
// # Failures
//
// A goroutine per open device reads its asynchronous events, and tells the owner of an object that
// failed (async.go). A goroutine per group that rdma_cm joined keeps the group joined (keep.go).
package verbs
