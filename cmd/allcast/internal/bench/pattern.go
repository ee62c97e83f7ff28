package bench

import (
	"encoding/binary"
	"math/bits"
)

// patternSeed is the seed of a rank's contribution to one call. It differs between calls, so that data left over from
// an earlier call is wrong.
func patternSeed(call uint64, rank int) uint64 {
	// Mixed twice: otherwise rank 1 would contribute in one call what rank 0 contributes in the next.
	return patternWord(patternWord(0, call), uint64(rank))
}

// patternWord returns word i of a contribution.
func patternWord(seed, i uint64) uint64 {
	x := seed + i*0x9e3779b97f4a7c15
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>29) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// fillPattern writes a contribution.
func fillPattern(b []byte, seed uint64) {
	var i uint64
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
	var i uint64
	for ; len(b) >= 8; b = b[8:] {
		if x := binary.LittleEndian.Uint64(b) ^ patternWord(seed, i); x != 0 {
			wrong += int64(nonzeroBytes(x))
		}
		i++
	}
	for w := patternWord(seed, i); len(b) > 0; b = b[1:] {
		if b[0] != byte(w) {
			wrong++
		}
		w >>= 8
	}
	return wrong
}

func nonzeroBytes(x uint64) int {
	const low7 = 0x7f7f7f7f7f7f7f7f
	return bits.OnesCount64((x&low7 + low7 | x) &^ low7)
}
