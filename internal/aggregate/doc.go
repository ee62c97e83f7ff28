// Package aggregate connects package inc to real networks. A [Server] is the aggregator of many jobs, and a [Port]
// is the connection of one rank to its aggregator.
//
// # Control
//
// A child, which is a rank or an aggregator, opens a TCP connection to its aggregator. Both sides prove that they
// know the site key before anything else is parsed (auth.go). All further bytes are sealed, so the secret of the
// job never travels in the clear. The messages are JSON objects behind their length (message.go):
//
//	child  -> parent   attach   the job, its tree and its secret; the child's place in the tree; its data address
//	parent -> child    status   the window, or why the aggregators cannot be used (yet)
//	child  -> parent   ping     every second
//	parent -> child    pong
//	child  -> parent   detach   the child leaves, and why
//
// A connection is an attachment: the end of the connection is the end of the attachment. When all children of an
// aggregator have attached, it attaches at its own parent, with the data addresses of all ranks below it. When one
// of them leaves, it detaches. The aggregator at the top decides whether the job can start, and the status flows
// down. Each aggregator lowers the window to its own limit on the way.
//
// # Data
//
// Datagrams carry an inc.Header and a payload. They go to the UDP port with the number of the control port. An
// aggregator sends only to its parent and to the data addresses of attached ranks. Many datagrams to the same
// address leave in one system call, and arrive in one, where the system can (socket_linux.go).
package aggregate
