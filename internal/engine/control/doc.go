// Package control runs a node over a real network: it is the tasks, the clock and the waiting that the
// sans-IO packages do without. Package datapath moves the bytes for it, and package observer watches.
//
// # The loop
//
// At most one goroutine runs the node at a time (loop.go). Everything that happens becomes a task on a
// lock-free queue: calls of the application, messages of peers, reports of the datapath, the clock.
// Whoever enqueues a task also drains the queue, unless another goroutine is already draining it, and
// carries out the node's actions in order (actions.go). Waking a goroutine for each task would cost
// more than most tasks. When there is nothing to do, nothing runs. Work that takes long runs elsewhere:
// registering memory, joining multicast groups, digests and averages of large results.
//
// Comments say "the loop" for the goroutine that runs the node at the time.
//
// # Waiting
//
// A goroutine blocked in Wait polls the network itself (wait.go), unless another one does. The awaited
// event therefore does not have to wake another thread first. With more ranks than processors, that
// would be most of the cost of a small message. The goroutine reads the connections and the sockets of
// the first receive worker (package datapath), polls for a moment, and only then sleeps. While much of an
// operation is missing, datagrams gather meanwhile and do not wake it (Datapath.Linger), but messages do.
// Where Go runs one goroutine at a time, it sleeps in Go's poller, because a system call that blocks would
// wake Go's monitor thread. It also checks the clock, because Go's runtime may notice a timer 20 ms late
// while the goroutine sleeps in the kernel. While no goroutine waits for an operation, one in the
// background polls. The sockets are in an epoll instance of their own, because Go's poller would wake a
// thread for each of them. That epoll is itself in Go's poller, armed only while no goroutine polls it.
//
// A communicator keeps the plans of its last calls, because programs repeat their calls (plans.go).
//
// # The end of a call
//
// A call ends for its caller when nothing touches its buffers any more. A complete call has all its data
// in place. For a failed call, control waits until the datapath reports Quiesced for each of its rounds
// (package datapath says why that is enough).
package control
