// Package rendezvous finds out who a rank is and brings all ranks of a job
// together at rank 0's address.
//
// [FromEnv] reads what launchers tell a process. [Join] then connects every rank
// to rank 0, which checks that all of them mean the same job, draws a seed and
// hands it out. On the [Session] that results, [Session.Exchange] gathers one
// small blob of every rank on all ranks: addresses, path MTUs, socket buffers.
//
// The connections form a star. That is enough for some thousands of ranks and a
// few exchanges at the start of a job; what needs speed uses a fabric.
//
// On the wire a connection begins with three messages of fixed size that show,
// in both directions, who has the job's key (auth.go). Frames follow (wire.go):
//
//	rank k -> 0   hello                         who I am, what I believe
//	0 -> rank k   welcome | verdict             the seed, or why there is no job
//	rank k -> 0   blob                          once an exchange
//	0 -> rank k   all | verdict                 the blobs of all ranks, or who failed
//	either way    leave                         an end that is not a crash
//
// A verdict reaches every rank that came, with the same text, and is drained
// before its connection closes: a reset must not overtake it.
package rendezvous
