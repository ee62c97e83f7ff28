// What the programs and the process that loads them share. layout_linux.go has the same in
// Go; a test compares the two.
#pragma once

#include <linux/types.h>

#define LANES 256 // operations under way at once, times subgroups; a power of two
#define PROBES 8 // places in which an operation's lane may be
#define WORDS (1 << 16) // of 32 chunks each, for all lanes
#define BLOCKS (1 << 14) // ranks' blocks, for all lanes
#define REGIONS 256 // pieces of memory that chunks may go to
#define VALUE (1 << 20) // bytes of a region's entry; a power of two
#define MOST (1 << 16) // bytes of a datagram, rounded up
#define SEGMENTS 64 // of a super-packet
#define COUNTERS 256

// A lane is an operation's subgroup. The process writes all above placed, and token last;
// it takes token away first. A token is never used twice.
struct lane {
	__u64 token; // 0: the lane is free
	__u64 base; // where the receive buffer begins in its region
	__u32 port; // of the subgroup
	__u32 comm;
	__u32 imm; // the operation's part of the immediate
	__u32 mask; // the chunk's part
	__u32 psns; // chunks, our own included
	__u32 gen; // of its words
	__u32 words; // first of them
	__u32 blocks; // first of them
	__u32 nblocks;
	__u32 per; // chunks of a block, if all have as many; else 0
	__u32 chunk; // bytes
	__u32 region;
	__u32 want; // chunks that others send
	__u32 every; // wake the process after so many more; a power of two
	__u16 own; // port that we send from
	__u16 pad[3];
	// Counted here.
	__u64 placed;
	__u64 duplicates;
	__u64 late;
	__u64 foreign;
};

// A word is the state of 32 chunks, which package place explains.
struct word {
	__u64 claimed; // the lane's gen in the upper half; chunks that are claimed or in place
	__u32 done; // chunks in place
	__u32 read; // chunks that the process has claimed for a read
};

// A block is what one rank sends to a subgroup.
struct block {
	__u64 off; // of its first chunk in the receive buffer
	__u32 psn; // of its first chunk
	__u32 n;
	__u32 tail; // bytes of the last chunk
	__u32 pad;
};

// A datagram begins with this.
struct header {
	__u64 token;
	__u32 comm;
	__u32 imm;
};
