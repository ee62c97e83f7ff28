// Package rendezvous brings all ranks of a job together at rank 0's address.
//
// [Join] connects every rank to rank 0, which checks that all of them mean the same job, and draws a seed
// for all. On the resulting [Session], [Session.Exchange] gathers one small blob of every rank on all
// ranks: addresses, path MTUs, socket buffers.
//
// The connections form a star. That is enough for some thousands of ranks and a few exchanges at the start
// of a job. Traffic that needs speed uses a fabric.
//
// On the wire a connection begins with three messages of fixed size, by which both sides prove that they
// have the job's key (auth.go). Frames follow (wire.go):
//
//	rank k -> 0   hello                         the rank, and its view of the job
//	0 -> rank k   welcome | verdict             the seed, or why there is no job
//	rank k -> 0   blob                          once per exchange
//	0 -> rank k   all | verdict                 the blobs of all ranks, or which rank failed
//	either way    leave                         an end that is not a crash
//
// A verdict reaches every rank that came, with the same text. Both sides drain the connection before they
// close it, because a reset must not overtake the verdict.
package rendezvous
