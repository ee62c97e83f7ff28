// Package bpf is a fabric.Placer in the Linux kernel. A program (place.c) inspects each
// packet at one of three hooks. It finds the operation of the packet, drops duplicates, copies
// the payload to its place in the receive buffer, marks the chunk as in place and counts it.
// The program wakes the process when all chunks have arrived. It is the counterpart of the
// paper's receive path in the network card's accelerator, but it uses the host's processors:
// "kernel-offloaded".
//
// # Hooks
//
// sockfilter is a filter of the multicast socket. It needs CAP_BPF, and CAP_PERFMON for the
// pointer arithmetic of the programs. It works on every interface, and the network stack has
// checked packets, checksums included, before they reach it. tcx is where packets enter the
// network stack; it also needs CAP_NET_ADMIN and Linux 6.6. xdp is in the driver, before the
// kernel allocates a packet buffer; only one process per machine can use it on an interface.
// With tcx and xdp the sockets have their filter too, for packets that the hook passed on.
//
// # Memory
//
// A program writes to the memory of maps, which the process maps as well. Receive buffers from
// Alloc are such memory, so programs place chunks directly in them. For any other buffer,
// programs fill a stage of the same shape, and the process copies the chunks once. A program
// can only address an entry of a map, at an offset that the verifier can bound. A region is
// therefore an array of adjacent 1 MiB entries, and a chunk that crosses a border is written
// in two parts.
//
// # Why nothing is written where it does not belong
//
// A placement is an operation's subgroup: a line of the table placements, words of the table
// words, and lines of the table blocks. The words are the record of the placement's chunks (package place), which
// the process shares. Without a stage, no other record says which chunks are in place. The
// process opens and closes placements while programs run on other processors, and waits for none of
// them:
//
//   - A program reads a placement, and then the placement's token once more. The process clears the
//     token before it changes any other field and sets the new token last. No token is used
//     twice. All fields that the program read therefore belong to the packet's operation.
//   - Before it writes, a program claims the chunk: it sets the chunk's bit in claimed by
//     compare-and-swap of a word that also holds the placement's generation. The swap fails if the
//     words belong to another placement by now. The winner writes the payload, and then sets the
//     chunk's bit in done.
//   - To close a placement, the process claims all its chunks, so that no program can win one any
//     more, and waits until the chunks claimed earlier are done. A program that started earlier
//     then fails to claim. The same holds for fetched chunks: the receive worker claims them,
//     and retries while a program is placing one (place.Map.Claim).
//   - The receive worker claims a chunk that the programs leave to the socket before it writes
//     the chunk.
//
// A program that is interrupted between claim and done delays all this. It runs in contexts
// that the kernel does not interrupt for long.
//
// # How it is tested
//
// TestAgainstIntake feeds the programs and mcast.Intake, the receive path of the process, the
// same random datagrams: valid, duplicate, reordered, foreign, truncated and of operations that
// are over. Chunks, counters and bytes must be the same.
package bpf
