// Package verbs is the fabric on InfiniBand and RoCE, through libibverbs. It is there
// with the build tag "verbs" only: without it nothing of the package but this page is
// compiled, and no RDMA header is needed.
//
// # The fast path
//
// A subgroup has one UD queue pair, attached to one multicast group. It sends and
// receives, and has a completion queue for each. All communicators share it: the contract
// (fabric.Multicast) opens groups once a job, and tells operations apart by their token,
// as on IP. So the paper's 32-bit immediate goes where it belongs, in SEND_WITH_IMM, and
// token and communicator travel as the first 12 bytes of the payload, gathered from a
// header ring of ours, while the chunk behind them is gathered from the user's memory: no
// byte of it is copied. With the token, a datagram of an operation that is over is dropped
// by the engine whatever is still in a queue (protocol's "Why a stale chunk is never
// accepted"); a queue pair for each communicator alone would not do that, since a
// communicator has many operations, and would need a group, a queue pair and a staging
// ring for each split.
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
// Every peer has an RC queue pair. Their numbers travel in the cards of the rendezvous.
// Frames (frame.go) are sent into slots that the peer has posted; each frame says how many
// it has posted by now, and nobody sends beyond that, so "receiver not ready" does not
// happen and its timers do not matter.
//
// A fetch is an RDMA READ straight into the user's receive buffer (read.go). The peer is
// asked once an operation where its buffer is; and after each read, whether it was still
// registered: only then the bytes count. See "Who may read" there.
//
// A peer that died shows as RETRY_EXC_ERR of whatever was sent to it, heartbeats at the
// latest, after about two seconds (linkTimeout, linkRetries).
package verbs
