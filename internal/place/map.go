// Package place records which chunks of one stream of one operation are in the receive buffer. The
// sums of a rank's block count as a stream of a reduction by aggregators. A rank has exactly one such
// record per stream and operation, a [Map]. Receive workers, reads of the slow path, the protocol and
// the kernel program (where the kernel receives) share it.
//
// # States
//
// A chunk is free, claimed or in place, and moves through these states in this order only:
//
//   - The slot of a free chunk belongs to the receive worker, which may write anything to it. The
//     worker lets the network write to the expected slots of the next chunks before it knows which
//     datagrams arrive.
//   - The slot of a claimed chunk belongs to its claimant. No other party writes to it.
//   - A chunk in place is never written again, and other ranks may read it.
//
// There is one exception: the kernel program releases its claim on a chunk that it cannot copy.
//
// Only the receive worker takes free chunks and claims chunks for reads, because only the worker
// knows which slots the network is writing to. The kernel program claims every chunk before it
// writes it, so it may claim at any time. A worker beside a kernel program also claims each chunk
// before it writes it.
package place

import (
	"math/bits"
	"sync/atomic"
)

// A Word is the state of 32 chunks. Package bpf defines the same layout in C.
type Word struct {
	Claimed atomic.Uint64 // lower half: chunks that are claimed or in place; upper half: generation
	Done    atomic.Uint32 // chunks in place
	Read    atomic.Uint32 // chunks claimed for a read
}

// WordBits is the number of chunks per Word.
const WordBits = 32

// A Map is the state of the chunks of one stream. Only the receive worker changes it, with one
// exception: the claimant of a chunk may call Finish from any goroutine. Any goroutine may read it.
type Map struct {
	words []Word
	n     uint32

	// The kernel program reports no chunks, so the worker remembers which placed chunks it has
	// seen. nil if no kernel program places chunks.
	seen []uint32
	from int // number of leading words whose chunks were all seen
}

// New returns a map of n free chunks. Its words fill whole cache lines, so that workers that place
// chunks of different streams do not write to the same line. Go aligns memory of such sizes to lines.
func New(n uint32) *Map {
	lines := (Words(n) + lineWords - 1) / lineWords
	return &Map{words: make([]Word, lines*lineWords), n: n}
}

// Shared returns a map of n chunks over words that the kernel program also changes. Chunks that are
// already claimed or in place count as seen.
func Shared(w []Word, n uint32) *Map {
	m := &Map{words: w[:Words(n)], n: n, seen: make([]uint32, Words(n))}
	for i := range m.words {
		m.seen[i] = uint32(m.words[i].Claimed.Load())
	}
	if rest := n % WordBits; rest > 0 {
		m.seen[len(m.seen)-1] |= ^uint32(0) << rest
	}
	return m
}

// IsShared reports whether the kernel program places chunks as well.
func (m *Map) IsShared() bool { return m.seen != nil }

// Words returns the number of Words for n chunks.
func Words(n uint32) int { return int((uint64(n) + WordBits - 1) / WordBits) }

// Len returns the number of chunks.
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

// Take claims a chunk for the caller. It returns false if the chunk is not free.
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

// Finish marks chunks that the caller has written as in place. The caller must have claimed them,
// unless only the receive worker places chunks.
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

// Claim claims the free chunks among [i, i+n) for a read, and calls won for each run of them. It
// reports busy if the kernel program is writing some of the others. The caller then calls Claim
// again, until every chunk is in place or claimed for a read.
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

// Fresh calls f for each run of chunks that the kernel program has placed since the last call.
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

// mask returns the bits of chunks [i, i+n), which share one word.
func mask(i, n uint32) uint32 { return ^uint32(0) >> (WordBits - n) << (i % WordBits) }

// eachRun calls f for each run of set bits. The lowest bit of word is chunk psn.
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

// Taken counts the datagrams that the receive workers of a process have taken from their queues. It
// is ahead of their reports.
type Taken struct{ counts []*Count }

// A Count is one worker's part of Taken. No other worker writes to its cache line.
type Count struct {
	_ [cacheLine]byte
	n atomic.Uint64
	_ [cacheLine - 8]byte
}

// New adds a Count. The caller adds all of them before other goroutines use t.
func (t *Taken) New() *Count {
	c := &Count{}
	t.counts = append(t.counts, c)
	return c
}

// Add counts n more datagrams.
func (c *Count) Add(n uint64) { c.n.Add(n) }

// Count returns the number of datagrams taken.
func (t *Taken) Count() (n uint64) {
	for _, c := range t.counts {
		n += c.n.Load()
	}
	return n
}

const (
	cacheLine = 64
	lineWords = cacheLine / 16 // Words per cache line
)
