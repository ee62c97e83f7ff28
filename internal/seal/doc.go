// Package seal protects bytes on a network from being read or changed. It provides sealed datagrams
// (AES-GCM with one key per operation) and sealed streams (AES-GCM with one key per connection and
// direction). For jobs that only need protection against accidents, it provides checksums (CRC32C).
//
// # Why no nonce is used twice
//
// AES-GCM is broken for a key once two different texts are sealed with the same nonce.
//
// Streams: a key is derived from fresh random nonces of both sides of a connection and from the
// direction. The nonce of a record is a counter, and the stream ends before the counter wraps.
//
// Datagrams: the key of an operation is derived from the job's secret, the communicator's name and
// members, and the operation's number. The nonce consists of the sender's world rank, the multicast stream and
// the immediate.
//
//   - A job's secret contains 256 bits that rank 0 draws for each job. The other ranks receive them
//     sealed, so no attacker can make ranks reuse the secret of an earlier job.
//   - No two processes use the same nonce with the same key, because the nonce names the process.
//   - A process uses each number of a communicator once (package node), and each name once. Ids of
//     communicators come from counters that never decrease (allcast.newID). This also holds for
//     closed communicators, for duplicates, and for communicators made by Shrink. A round of a large
//     call is an operation with its own number.
//   - In one operation, a process multicasts each PSN of a multicast stream once: the protocol's cursor only
//     moves forward, whatever the outcome of a send. Lost chunks are read over a reliable connection,
//     which is a stream.
//   - A datagram that the socket must send again, because it refused a super-packet, has the same
//     bytes.
//
// # Speed of checksums
//
// With checksums, each rank reads every byte twice: on arrival, and before delivery. Where the processor
// can, assembly therefore sums four blocks per instruction (fold). It computes the same bits as package
// crc32, which does the rest: short texts, and all texts on other processors.
package seal
