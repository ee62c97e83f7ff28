// The layout that the programs and the process share. layout_linux.go has it in Go; a test
// compares the two.
#pragma once

#include <linux/types.h>

#define PLACEMENTS 256 // concurrent operations times subgroups; a power of two
#define PROBES 8 // lines in which an operation's placement may be
#define WORDS (1 << 16) // of 32 chunks each, for all placements
#define BLOCKS (1 << 14) // ranks' blocks, for all placements
#define REGIONS 256 // pieces of memory for chunks
#define VALUE (1 << 20) // bytes of a region's entry; a power of two
#define MAX_DATAGRAM (1 << 16) // bytes, rounded up
#define SEGMENTS 64 // per super-packet
#define COUNTERS 256

// A placement is an operation's subgroup. The process writes all fields above placed: it clears token
// first and sets it last. A token is never used twice.
struct placement {
	__u64 token; // 0: the placement is free
	__u64 base; // offset of the receive buffer in its region
	__u32 port; // of the subgroup
	__u32 comm;
	__u32 imm; // the operation's part of the immediate
	__u32 mask; // the chunk's part
	__u32 psns; // number of chunks, our own included
	__u32 gen; // generation of its words
	__u32 words; // index of the first word
	__u32 blocks; // index of the first block
	__u32 nblocks;
	__u32 per; // chunks per block if all blocks have the same number, otherwise 0
	__u32 chunk; // bytes
	__u32 region;
	__u32 want; // chunks that others send
	__u32 every; // chunks per wake-up of the process; a power of two
	__u16 own; // source port of this process
	__u16 pad[3];
	// Counted by the programs.
	__u64 placed;
	__u64 duplicates;
	__u64 late;
	__u64 foreign;
};

// A word is the state of 32 chunks; see package place.
struct word {
	__u64 claimed; // upper half: the placement's gen; lower half: chunks claimed or in place
	__u32 done; // chunks in place
	__u32 read; // chunks that the process has claimed for a read
};

// A block is the data that one rank sends to a subgroup.
struct block {
	__u64 off; // offset of its first chunk in the receive buffer
	__u32 psn; // PSN of its first chunk
	__u32 n;
	__u32 tail; // bytes of the last chunk
	__u32 pad;
};

// The start of every datagram.
struct header {
	__u64 token;
	__u32 comm;
	__u32 imm;
};
