// Package place records which chunks of one subgroup of one operation are in the receive buffer.
// A rank has exactly one such record per subgroup and operation, a [Map]. Receive workers, reads of
// the slow path, the protocol and, where the kernel receives, a program in the kernel share it.
//
// # States
//
// A chunk is free, claimed or in place, and only ever moves on:
//
//   - The slot of a free chunk belongs to the receive worker, which may write anything to it: it
//     lets the network write to where the next chunks are expected, before it knows what arrives.
//   - The slot of a claimed chunk belongs to whoever claimed it, and nobody else writes to it.
//   - A chunk in place is never written again, and other ranks may read it.
//
// There is one exception: a program in the kernel that claimed a chunk and could not copy it gives
// its claim back.
//
// Only the receive worker takes free chunks and claims them for others, because only it knows what
// the network is writing to. A program in the kernel writes nothing that it has not claimed, so it
// may claim at any time; a worker beside such a program claims before it writes, too.
package place

import (
	"math/bits"
	"sync/atomic"
)

// A Word is the state of 32 chunks. Package bpf has the same layout in C.
type Word struct {
	Claimed atomic.Uint64 // lower half: chunks that are claimed or in place; upper half: generation
	Done    atomic.Uint32 // chunks in place
	Read    atomic.Uint32 // chunks that were claimed for a read
}

// WordBits is how many chunks a Word knows.
const WordBits = 32

// A Map is the state of the chunks of one subgroup. One goroutine at a time, the receive worker,
// changes it, except that Finish may be called by whoever has claimed the chunks. Any goroutine
// may read it.
type Map struct {
	words []Word
	n     uint32

	// A program in the kernel tells nobody which chunks it placed. So the worker remembers which
	// it has seen; nil: no program places any.
	seen []uint32
	from int // all chunks of the words before it were seen
}

// New returns the map of n chunks, all free.
func New(n uint32) *Map { return &Map{words: make([]Word, words(n)), n: n} }

// Shared returns the map of n chunks whose words a program in the kernel also changes. Chunks that
// are in place or claimed now count as seen.
func Shared(w []Word, n uint32) *Map {
	m := &Map{words: w[:words(n)], n: n, seen: make([]uint32, words(n))}
	for i := range m.words {
		m.seen[i] = uint32(m.words[i].Claimed.Load())
	}
	if rest := n % WordBits; rest > 0 {
		m.seen[len(m.seen)-1] |= ^uint32(0) << rest
	}
	return m
}

// IsShared reports whether a program in the kernel places chunks as well.
func (m *Map) IsShared() bool { return m.seen != nil }

// Words is how many Words hold n chunks.
func Words(n uint32) int { return words(n) }

func words(n uint32) int { return int((uint64(n) + WordBits - 1) / WordBits) }

// Len is the number of chunks.
func (m *Map) Len() uint32 { return m.n }

// Free reports whether a chunk is free.
func (m *Map) Free(i uint32) bool {
	return uint32(m.words[i/WordBits].Claimed.Load())&(1<<(i%WordBits)) == 0
}

// InPlace reports whether a chunk is in place.
func (m *Map) InPlace(i uint32) bool {
	return m.words[i/WordBits].Done.Load()&(1<<(i%WordBits)) != 0
}

// ForRead reports whether a chunk was claimed for a read.
func (m *Map) ForRead(i uint32) bool {
	return m.words[i/WordBits].Read.Load()&(1<<(i%WordBits)) != 0
}

// Take claims a chunk for the caller, and reports false if it is not free.
func (m *Map) Take(i uint32) bool {
	w, bit := &m.words[i/WordBits], uint64(1)<<(i%WordBits)
	if w.Claimed.Load()&bit != 0 || w.Claimed.Or(bit)&bit != 0 {
		return false
	}
	if m.seen != nil {
		m.seen[i/WordBits] |= uint32(bit)
	}
	return true
}

// Finish says that chunks are in place. The caller has written them. It has claimed them, unless only
// the receive worker places chunks.
func (m *Map) Finish(i, n uint32) {
	for n > 0 {
		k := min(WordBits-i%WordBits, n)
		mask := mask(i, k)
		w := &m.words[i/WordBits]
		if uint32(w.Claimed.Load())&mask != mask {
			w.Claimed.Or(uint64(mask))
		}
		w.Done.Or(mask)
		i, n = i+k, n-k
	}
}

// Claim claims the free ones of n chunks for a read, and calls won for each run of them. It reports
// busy if a program in the kernel is writing some of the others: the caller then calls again, until
// all of them are in place or claimed for a read.
func (m *Map) Claim(i, n uint32, won func(i, n uint32)) (busy bool) {
	for n > 0 {
		k := min(WordBits-i%WordBits, n)
		mask := mask(i, k)
		w := &m.words[i/WordBits]
		old := uint32(w.Claimed.Or(uint64(mask)))
		got := mask &^ old
		w.Read.Or(got)
		busy = busy || mask&old&^w.Read.Load()&^w.Done.Load() != 0
		if m.seen != nil {
			m.seen[i/WordBits] |= got
		}
		eachRun(i-i%WordBits, got, won)
		i, n = i+k, n-k
	}
	return busy
}

// Fresh calls f for each run of chunks that a program in the kernel has placed since the last call.
func (m *Map) Fresh(f func(i, n uint32)) {
	for i := m.from; i < len(m.words); i++ {
		if fresh := m.words[i].Done.Load() &^ m.seen[i]; fresh != 0 {
			m.seen[i] |= fresh
			eachRun(uint32(i)*WordBits, fresh, f)
		}
		if i == m.from && m.seen[i] == ^uint32(0) {
			m.from++
		}
	}
}

// NextFree returns the first free chunk in [i, end), or end.
func (m *Map) NextFree(i, end uint32) uint32 {
	return m.next(i, end, func(w *Word) uint32 { return ^uint32(w.Claimed.Load()) })
}

// NextTaken returns the first chunk in [i, end) that is not free, or end.
func (m *Map) NextTaken(i, end uint32) uint32 {
	return m.next(i, end, func(w *Word) uint32 { return uint32(w.Claimed.Load()) })
}

// NextInPlace returns the first chunk in [i, end) that is in place, or end.
func (m *Map) NextInPlace(i, end uint32) uint32 {
	return m.next(i, end, func(w *Word) uint32 { return w.Done.Load() })
}

// NextMissing returns the first chunk in [i, end) that is not in place, or end.
func (m *Map) NextMissing(i, end uint32) uint32 {
	return m.next(i, end, func(w *Word) uint32 { return ^w.Done.Load() })
}

func (m *Map) next(i, end uint32, bitsOf func(*Word) uint32) uint32 {
	for i < end {
		if b := bitsOf(&m.words[i/WordBits]) >> (i % WordBits); b != 0 {
			return min(i+uint32(bits.TrailingZeros32(b)), end)
		}
		i += WordBits - i%WordBits
	}
	return end
}

// mask is the bits of n chunks from i on, all of one word.
func mask(i, n uint32) uint32 { return ^uint32(0) >> (WordBits - n) << (i % WordBits) }

// eachRun calls f for each run of the chunks that a word's bits name, the first bit being chunk psn.
func eachRun(psn, word uint32, f func(i, n uint32)) {
	for word != 0 {
		skip := uint32(bits.TrailingZeros32(word))
		n := uint32(bits.TrailingZeros32(^(word >> skip)))
		f(psn+skip, n)
		if skip+n == WordBits {
			return
		}
		word &^= (1<<n - 1) << skip
	}
}
