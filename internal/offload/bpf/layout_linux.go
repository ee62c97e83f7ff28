package bpf

import "sync/atomic"

// The constants of place.h; a test compares them.
const (
	placements  = 256
	probes      = 8
	words       = 1 << 16
	blocks      = 1 << 14
	regions     = 256
	value       = 1 << 20
	maxDatagram = 1 << 16
	counters    = 256

	// Entries of the counters with a meaning of their own.
	random = counters - 1 // state of the random numbers
	shared = counters - 2 // 1 if other processes need our packets too
	lost   = counters - 3 // datagrams lost on purpose
	whole  = counters - 4 // packet size of super-packets that are one chunk each

	maxGroups = 64
)

// placement is struct placement of place.h.
type placement struct {
	token                              atomic.Uint64
	base                               uint64
	port, comm, imm, mask, psns, gen   uint32
	words, blocks, nblocks, per, chunk uint32
	region, want, every                uint32
	own                                uint16
	_                                  [3]uint16
	counts                             counts
}

// counts are what the programs count for a placement.
type counts struct {
	placed, duplicates, late, foreign atomic.Uint64
}

type block struct {
	off          uint64
	psn, n, tail uint32
	_            uint32
}
