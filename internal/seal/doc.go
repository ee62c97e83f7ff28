// Package seal is what keeps bytes on a network from being read or changed: sealed
// datagrams (AES-GCM, a key an operation), sealed streams (AES-GCM, a key a connection
// and direction), and the checksums (CRC32C) of jobs that only fear accidents.
//
// # Why no nonce is used twice
//
// AES-GCM is broken for a key once two different texts are sealed with one nonce.
//
// Streams: a key comes from fresh random nonces of both sides of a connection and names
// the direction; its nonce is a counter of records that ends the stream before it wraps.
//
// Datagrams: the key of an operation comes from the job's secret, the communicator's
// name and members, and the operation's number on it; the nonce is the sender's world
// rank, the subgroup and the immediate.
//
//   - A job's secret contains 256 bits that rank 0 draws for each job, and that reach
//     the others sealed: nobody can make them use those of an earlier job.
//   - No two processes use one nonce with one key: the nonce names the process.
//   - One process uses each number of a communicator once (package node), and a
//     name once: ids of communicators come from counters that never go back
//     (allcast.newID), also when one is closed, made by Shrink, or a duplicate. A round of
//     a large call is an operation with a number of its own.
//   - In one operation a process multicasts each PSN of a subgroup once: the protocol's
//     cursor only moves forward, whatever a send's outcome is. What is lost is read
//     over a reliable connection, which is a stream.
//   - A datagram that the socket has to send again, because a super-packet was refused,
//     is the same bytes.
package seal
