package bench

import (
	"bytes"
	"encoding/binary"
)

// patternSeed is the seed of a block of a rank's contribution to one call. It differs between calls, so that data left
// over from an earlier call is wrong.
func patternSeed(call uint64, rank, block int) uint64 {
	// Mixed twice: otherwise rank 1 would contribute in one call what rank 0 contributes in the next.
	return patternWord(patternWord(0, call), uint64(rank)|uint64(block)<<32)
}

// patternWord returns word i of a contribution.
func patternWord(seed, i uint64) uint64 {
	x := seed + i*0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>29) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// fillPattern writes a contribution from its first word, with number i, on.
func fillPattern(b []byte, seed, i uint64) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, patternWord(seed, i))
		i++
	}
	for w := patternWord(seed, i); len(b) > 0; b = b[1:] {
		b[0] = byte(w)
		w >>= 8
	}
}

// wrongPattern counts the bytes that differ from what fillPattern writes.
func wrongPattern(b []byte, seed uint64) (wrong int64) {
	const batch = 1 << 10 // words
	var want [8 * batch]byte
	for i := uint64(0); len(b) > 0; i += batch {
		n := min(len(b), len(want))
		fillPattern(want[:n], seed, i)
		if !bytes.Equal(b[:n], want[:n]) {
			for k, w := range want[:n] {
				if b[k] != w {
					wrong++
				}
			}
		}
		b = b[n:]
	}
	return wrong
}
