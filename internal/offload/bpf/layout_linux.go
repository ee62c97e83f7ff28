package bpf

import (
	"sync/atomic"

	"github.com/allcast/allcast/internal/place"
)

// What place.h has in C.
const (
	lanes    = 256
	probes   = 8
	words    = 1 << 16
	blocks   = 1 << 14
	regions  = 256
	value    = 1 << 20
	most     = 1 << 16
	counters = 256

	// Counters that are none.
	random = counters - 1 // the state of random numbers
	shared = counters - 2 // whether other processes want our packets too
	lost   = counters - 3 // datagrams, on purpose
	whole  = counters - 4 // bytes of the packets of which a super-packet is one chunk

	maxGroups = 64
)

type lane struct {
	token                                    atomic.Uint64
	base                                     uint64
	port, comm, imm, mask, psns, gen         uint32
	words, blocks, nblocks, per, chunk       uint32
	region, want, every                      uint32
	own                                      uint16
	_                                        [3]uint16
	placed, duplicates, late, foreignPackets atomic.Uint64
}

// A word is the state of 32 chunks.
type word = place.Word

type block struct {
	off          uint64
	psn, n, tail uint32
	_            uint32
}
