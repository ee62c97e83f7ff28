// Package bpf is a fabric.Placer in the Linux kernel. A program (place.c) looks at each
// packet where one of three hooks sees it: checks which operation it belongs to, whether
// its chunk has come already, copies the payload to its place in the receive buffer, marks
// the chunk as in place and counts. The process is woken when all have come. It is the
// counterpart of the paper's receive path in the network card's accelerator, but it takes
// the host's processors: "kernel-offloaded".
//
// # Hooks
//
// sockfilter is a filter of the multicast socket. It needs CAP_BPF, and CAP_PERFMON because
// who has not may not compute addresses as the programs do; works on every
// interface, and packets have been checked by the network stack (checksums too) when they
// reach it. tcx is where packets enter the network stack; it needs CAP_NET_ADMIN as well and Linux 6.6.
// xdp is in the driver, before the kernel makes anything of a packet; only one process of a
// machine can use it on an interface. With tcx and xdp the sockets have their filter too, for
// what the hook left to them.
//
// # Memory
//
// What a program writes to is the memory of maps, which the process sees as well. Receive
// buffers from Alloc are such memory: chunks are placed in them. For others there is a stage
// of the same shape, and what is placed there is copied once. A program can only address an
// entry of a map, and an offset in it that the verifier can bound, so a region is an array
// of 1 MiB entries, which are adjacent in memory, and what crosses a border is
// written in two parts.
//
// # Why nothing is written where it does not belong
//
// A lane is an operation's subgroup: a line of the table lanes, words of the table words, and
// lines of the table blocks. The words are the record of the lane's chunks (package place), which
// the process shares: no other record says which chunks are in place, unless there is a stage.
// The process opens and closes lanes while programs run on other processors, and waits for
// none of them:
//
//   - A program reads a lane, and then the lane's token once more. The process takes the
//     token away before it changes anything else and sets the new one at the end, and
//     no token is used twice. So what was read is all of one operation, the packet's.
//   - Before it writes, a program claims the chunk: it sets the chunk's bit in claimed by
//     compare-and-swap of a word that holds the lane's generation too. It fails if the words are
//     another lane's by now. The winner writes the payload, and then sets the chunk's bit in done.
//   - To close a lane, the process claims all its chunks, which nobody wins any more, and
//     waits until those that were claimed before are done. What a program that began earlier
//     does then can only fail. The same holds for chunks that are fetched: the receive worker
//     claims them, and claims again while a program is just placing one (place.Map.Claim).
//   - A chunk that the programs leave to the socket is claimed by the receive worker before it
//     is written.
//
// A program that is stopped between claim and done holds all this up; it runs where the
// kernel does not let it be stopped for long.
//
// # How it is tested
//
// TestAgainstIntake feeds the programs and protocol.Intake, the receive path of the process, the
// same random datagrams: valid, duplicate, reordered, foreign, truncated and of operations that
// are over. Chunks, counters and bytes must be the same.
package bpf
