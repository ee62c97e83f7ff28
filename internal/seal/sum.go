package seal

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum continues a CRC32C over b. It equals crc32.Update, and is faster if b is long.
func Sum(before uint32, b []byte) uint32 {
	switch {
	case folds && len(b) >= minFold:
		return fold(before, b)
	case len(b) >= minPull:
		return pull(before, b)
	}
	return crc32.Update(before, castagnoli, b)
}

// SumWords continues a CRC32C over two words in little endian.
func SumWords(before uint32, a, b uint64) uint32 {
	if folds {
		return ^wordsSum(^before, a, b)
	}
	crc := ^before
	for _, w := range [...]uint64{a, b} {
		for range 8 {
			crc = castagnoli[byte(crc)^byte(w)] ^ crc>>8
			w >>= 8
		}
	}
	return ^crc
}

const (
	minFold = 512 // length from which fold is faster than package crc32
	// minPull is the length from which pull is faster: so long a text comes from memory. For a chunk
	// that was just received, and still is in the cache, package crc32 is faster.
	minPull = 256 << 10
)

// pull continues a CRC32C over b. Package crc32 reads 4 KiB at three places in turn, and the processor
// does not prefetch them well from memory. Loads that nothing waits for first bring them to the cache.
func pull(sum uint32, b []byte) uint32 {
	const part, line = 4 << 10, 64
	var loaded uint64
	for len(b) > 0 {
		p := b[:min(part, len(b))]
		for i := 0; i+8 <= len(p); i += line {
			loaded |= binary.LittleEndian.Uint64(p[i:])
		}
		sum = crc32.Update(sum, castagnoli, p)
		b = b[len(p):]
	}
	keep(loaded)
	return sum
}

// keep keeps the compiler from removing loads.
//
//go:noinline
func keep(uint64) {}
