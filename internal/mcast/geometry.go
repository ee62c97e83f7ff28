package mcast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"sort"

	"github.com/allcast/allcast/internal/wire"
)

// maxRounds limits the rounds of a call. Calls that need more have unreasonable parameters.
const maxRounds = 1 << 16

// ErrShape marks an invalid Shape.
var ErrShape = errors.New("bad collective")

// A Shape describes the requested collective. It is the same on all ranks. A Broadcast is an
// Allgather to which only the root contributes; there is no other difference.
type Shape struct {
	Kind      wire.CallKind
	Root      int     // Broadcast only
	Counts    []int64 // bytes that each rank contributes; len(Counts) is P
	Chunk     int
	Chains    int     // M, clamped to the number of ranks that send
	Subgroups int     // S, clamped to the chunks of the largest block
	Streams   int     // T, streams per subgroup that the fabric tells apart, clamped to M; 0 for 1
	Groups    [][]int // chains as lists of ranks; if set, Chains is ignored
	Eager     uint32  // chunks up to which the collective may be eager (EagerChunks); 0 if none may be
}

// A Geometry defines how one round of a Shape is cut into chunks. It also defines which ranks send them
// in which order, and where they belong in the receive buffer. It is immutable, depends only on Shape and
// Layout, and is the same on all ranks.
//
// The receive buffer holds the ranks' blocks in rank order. Subgroup s carries the contiguous chunks
// [n*s/S, n*(s+1)/S) of each block of n chunks.
//
// A subgroup is divided into T streams, so that chunks of different chains do not mix in one receive
// queue. Stream q*S+s carries subgroup s of the chains k with k mod T = q. Its PSNs number these chunks,
// chain by chain and rank by rank: without loss, the chunks of a stream with one chain arrive in the
// order of their PSNs.
type Geometry struct {
	shape   Shape
	size    int
	subs    int
	chunk   int64
	skip    int64   // offset of this round in each rank's block
	displs  []int64 // offset of each sender's block of this round in the receive buffer
	counts  []int64 // size of each sender's block in bytes
	chunks  []uint32
	senders []int      // ranks that contribute to this round, in rank order
	index   []int32    // rank -> index in senders, or -1
	split   int        // T after clamping
	order   [][]int32  // order[t]: indices of the senders of stream t, in the order of their PSNs
	place   []int32    // index in senders -> position in its order
	base    [][]uint32 // base[t][j]: first PSN of sender order[t][j] in stream t; base[t][len] ends it
	start   [][]int64  // start[t][j]: offset in the block of order[t][j] that PSN 0 would have
	chains  chains
	bytes   int64
	total   uint64 // number of chunks
	uniform bool   // whether all senders have the same number of chunks
	digest  uint64
	call    wire.Call

	eager bool   // whether the collective may be eager (Eager)
	tag   uint32 // part of the digest that the datagrams of an eager collective carry in their PSNs
}

// MaxStreams limits the receive queues of a process, unless there are more subgroups.
const MaxStreams = 16

// StreamsPerSubgroup returns how many streams of each subgroup a fabric should tell apart: at most one per
// rank, since there are no more chains.
func StreamsPerSubgroup(subgroups, ranks int) int { return max(1, min(MaxStreams/subgroups, ranks)) }

// Plan divides a Shape into rounds that each fit the Layout's PSNs.
func Plan(s Shape, l wire.Layout) ([]*Geometry, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	var senders, maxChunks int64
	displs := make([]int64, len(s.Counts))
	var at int64
	for r, n := range s.Counts {
		displs[r] = at
		at += n
		if n > 0 {
			senders++
			maxChunks = max(maxChunks, (n-1)/int64(s.Chunk)+1)
		}
	}
	s.Subgroups = int(max(1, min(int64(s.Subgroups), maxChunks)))
	eager := s.mayBeEager(l)
	if eager {
		s.Subgroups, s.Streams = 1, 1
	}
	if senders > l.Capacity() {
		return nil, fmt.Errorf("%w: %d ranks send, but the immediate numbers only %d chunks; use more PSN bits",
			ErrShape, senders, l.Capacity())
	}
	// A round carries perRound chunks of every block. A subgroup then carries at most
	// senders * ceil(perRound/S) chunks, which must fit its PSNs. Chunk counters have 32 bits, also
	// summed over all subgroups.
	perRound := max(1, min(maxChunks,
		l.Capacity()/max(1, senders)*int64(s.Subgroups), math.MaxInt32/max(1, senders)))
	rounds := max(1, (maxChunks+perRound-1)/perRound)
	if rounds > maxRounds {
		return nil, fmt.Errorf("%w: %d bytes take %d rounds of %d chunks; use larger chunks or more PSN bits",
			ErrShape, at, rounds, perRound*senders)
	}
	plan := make([]*Geometry, 0, rounds)
	for k := range rounds {
		plan = append(plan, newGeometry(s, displs, k*perRound*int64(s.Chunk), perRound*int64(s.Chunk)))
	}
	if eager {
		plan[0].eager, plan[0].tag = true, eagerTag(plan[0].digest, l)
	}
	return plan, nil
}

func (s *Shape) check() error {
	switch {
	case s.Kind != wire.Broadcast && s.Kind != wire.Allgather:
		return fmt.Errorf("%w: unknown kind %d", ErrShape, s.Kind)
	case len(s.Counts) == 0:
		return fmt.Errorf("%w: no ranks", ErrShape)
	case s.Chunk < 1 || s.Chunk > 1<<30:
		return fmt.Errorf("%w: chunk of %d bytes: must be 1 to 1 GiB", ErrShape, s.Chunk)
	case s.Chains < 1 && s.Groups == nil:
		return fmt.Errorf("%w: %d chains: must be at least 1", ErrShape, s.Chains)
	case s.Subgroups < 1 || s.Subgroups > wire.MaxSubgroups:
		return fmt.Errorf("%w: %d subgroups: must be 1 to %d", ErrShape, s.Subgroups, wire.MaxSubgroups)
	case s.Streams < 0 || s.Streams > wire.MaxStreams:
		return fmt.Errorf("%w: %d streams per subgroup: must be 1 to %d", ErrShape, s.Streams, wire.MaxStreams)
	case s.Kind == wire.Broadcast && (s.Root < 0 || s.Root >= len(s.Counts)):
		return fmt.Errorf("%w: root %d: must be 0 to %d", ErrShape, s.Root, len(s.Counts)-1)
	}
	var sum int64
	for r, n := range s.Counts {
		if n < 0 || n > math.MaxInt64-sum {
			return fmt.Errorf("%w: rank %d contributes %d bytes: sizes must be 0 or more and their sum fit 63 bits",
				ErrShape, r, n)
		}
		if s.Kind == wire.Broadcast && r != s.Root && n != 0 {
			return fmt.Errorf("%w: rank %d contributes to a broadcast from %d", ErrShape, r, s.Root)
		}
		sum += n
	}
	return s.checkGroups()
}

func (s *Shape) checkGroups() error {
	if s.Groups == nil {
		return nil
	}
	seen := make([]bool, len(s.Counts))
	n := 0
	for _, g := range s.Groups {
		for _, r := range g {
			if r < 0 || r >= len(seen) || seen[r] {
				return fmt.Errorf("%w: chains must hold each rank once; rank %d does not fit", ErrShape, r)
			}
			seen[r] = true
			n++
		}
	}
	if n != len(seen) {
		return fmt.Errorf("%w: chains hold %d of %d ranks", ErrShape, n, len(seen))
	}
	return nil
}

func newGeometry(s Shape, displs []int64, skip, limit int64) *Geometry {
	g := &Geometry{
		shape: s, size: len(s.Counts), subs: s.Subgroups, chunk: int64(s.Chunk), skip: skip,
		index: make([]int32, len(s.Counts)), uniform: true,
	}
	for r, n := range s.Counts {
		g.index[r] = -1
		n = min(n-skip, limit)
		if n <= 0 {
			continue
		}
		g.index[r] = int32(len(g.senders))
		g.senders = append(g.senders, r)
		g.displs = append(g.displs, displs[r]+skip)
		g.counts = append(g.counts, n)
		g.chunks = append(g.chunks, uint32((n-1)/g.chunk+1))
		g.uniform = g.uniform && g.chunks[0] == g.chunks[len(g.chunks)-1]
		g.bytes += n
		g.total += uint64(g.chunks[len(g.chunks)-1])
	}
	g.chains = newChains(g)
	g.divide()
	g.digest = g.hash()
	g.call = wire.Call{Kind: s.Kind, Algo: wire.Mcast, Root: uint32(s.Root)}
	for _, n := range s.Counts {
		g.call.Bytes += uint64(n)
	}
	return g
}

// divide divides the chunks into streams.
func (g *Geometry) divide() {
	g.split = max(1, min(g.shape.Streams, g.Chains()))
	g.place = make([]int32, len(g.senders))
	for q := range g.split {
		var order []int32
		for k := q; k < g.Chains(); k += g.split {
			for _, i := range g.chains.members[k] {
				g.place[i] = int32(len(order))
				order = append(order, int32(i))
			}
		}
		for sub := range g.subs {
			base, start := make([]uint32, len(order)+1), make([]int64, len(order))
			for j, i := range order {
				lo, hi := part(g.chunks[i], sub, g.subs)
				base[j+1] = base[j] + hi - lo
				start[j] = (int64(lo) - int64(base[j])) * g.chunk
			}
			g.order, g.base, g.start = append(g.order, order), append(g.base, base), append(g.start, start)
		}
	}
}

// part returns the range of a block of n chunks that subgroup sub of subs carries.
func part(n uint32, sub, subs int) (lo, hi uint32) {
	return uint32(uint64(n) * uint64(sub) / uint64(subs)), uint32(uint64(n) * uint64(sub+1) / uint64(subs))
}

// hash identifies the call. If the digests of two ranks differ, the ranks made different calls.
func (g *Geometry) hash() uint64 {
	h := fnv.New64a()
	var b [8]byte
	put := func(v int64) {
		binary.LittleEndian.PutUint64(b[:], uint64(v))
		h.Write(b[:])
	}
	put(int64(g.shape.Kind))
	if g.shape.Kind == wire.Broadcast {
		put(int64(g.shape.Root))
	}
	put(g.bytes) // bytes of this round, which depend on the layout
	put(g.chunk)
	put(int64(g.subs))
	put(int64(len(g.base)))
	put(g.skip)
	put(int64(len(g.chains.members)))
	for _, n := range g.shape.Counts {
		put(n)
	}
	for _, c := range g.chains.members {
		put(int64(len(c)))
		for _, i := range c {
			put(int64(i))
		}
	}
	return h.Sum64()
}

// Size returns P.
func (g *Geometry) Size() int { return g.size }

// Subgroups returns S after clamping.
func (g *Geometry) Subgroups() int { return g.subs }

// Streams returns S*T, the number of streams of all subgroups.
func (g *Geometry) Streams() int { return len(g.base) }

// Subgroup returns the subgroup of a stream.
func (g *Geometry) Subgroup(stream int) int { return stream % g.subs }

// stream returns the stream that carries the chunks of senders[i] in subgroup sub.
func (g *Geometry) stream(i, sub int) int { return int(g.chains.of[i])%g.split*g.subs + sub }

// carries reports whether a stream carries chunks of senders[i].
func (g *Geometry) carries(stream, i int) bool {
	return int(g.chains.of[i])%g.split == stream/g.subs
}

// Chains returns M after clamping.
func (g *Geometry) Chains() int { return len(g.chains.members) }

// Kind returns the kind of the collective.
func (g *Geometry) Kind() wire.CallKind { return g.shape.Kind }

// Bytes returns the size of this round in the receive buffer, including this rank's block.
func (g *Geometry) Bytes() int64 { return g.bytes }

// Chunks returns the number of chunks of this round, including this rank's block.
func (g *Geometry) Chunks() uint64 { return g.total }

// Call describes the call that this round belongs to, for error messages.
func (g *Geometry) Call() wire.Call { return g.call }

// Digest identifies the call that this round belongs to.
func (g *Geometry) Digest() uint64 { return g.digest }

// PSNs returns the number of chunks that a stream carries.
func (g *Geometry) PSNs(stream int) uint32 {
	b := g.base[stream]
	return b[len(b)-1]
}

// Block returns the range of PSNs of rank's chunks in a stream. It is empty if another stream carries
// rank's chain.
func (g *Geometry) Block(stream, rank int) (psn, n uint32) {
	i := g.index[rank]
	if i < 0 || !g.carries(stream, int(i)) {
		return 0, 0
	}
	j := g.place[i]
	return g.base[stream][j], g.blockSize(stream, int(j))
}

// blockSize returns the number of chunks of the j-th sender of a stream.
func (g *Geometry) blockSize(stream, j int) uint32 {
	b := g.base[stream]
	return b[j+1] - b[j]
}

// find returns the position of the rank that sends psn among the senders of a stream.
func (g *Geometry) find(stream int, psn uint32) int {
	b := g.base[stream]
	if len(b) == 2 {
		return 0
	}
	if g.uniform {
		return int(psn / b[1])
	}
	return sort.Search(len(b)-1, func(j int) bool { return b[j+1] > psn })
}

// sender returns the index in senders of the j-th sender of a stream.
func (g *Geometry) sender(stream, j int) int { return int(g.order[stream][j]) }

// Owner returns the rank that sends psn.
func (g *Geometry) Owner(stream int, psn uint32) int {
	return g.senders[g.sender(stream, g.find(stream, psn))]
}

// Locate returns the position of chunk psn of a stream: its offset in the receive buffer, its offset in
// its owner's block, and its length.
func (g *Geometry) Locate(stream int, psn uint32) (off, inBlock int64, length int) {
	return g.locate(stream, psn, g.find(stream, psn))
}

func (g *Geometry) locate(stream int, psn uint32, j int) (off, inBlock int64, length int) {
	i := g.sender(stream, j)
	at := g.start[stream][j] + int64(psn)*g.chunk
	return g.displs[i] + at, g.skip + at, int(min(g.chunk, g.counts[i]-at))
}

// Blocks calls f for each rank's block of a stream, in PSN order. It passes the offset of the block in
// the receive buffer, its PSNs, and the length of its last chunk.
func (g *Geometry) Blocks(stream int, f func(off int64, psn, n uint32, tail int)) {
	b := g.base[stream]
	for j := range len(b) - 1 {
		if n := b[j+1] - b[j]; n > 0 {
			off, _, _ := g.locate(stream, b[j], j)
			_, _, tail := g.locate(stream, b[j+1]-1, j)
			f(off, b[j], n, tail)
		}
	}
}

// Chunk returns the payload size of a chunk that is not the last of its block.
func (g *Geometry) Chunk() int { return int(g.chunk) }

// Span returns the piece of the receive buffer that chunks [psn, psn+n) of one owner fill. Only the
// last chunk of a block may be short.
func (g *Geometry) Span(stream int, psn, n uint32) (off, length int64) {
	j := g.find(stream, psn)
	off, _, _ = g.locate(stream, psn, j)
	last, _, tail := g.locate(stream, psn+n-1, j)
	return off, last + int64(tail) - off
}

// Spans calls f for each piece of the receive buffer that this round fills, in order. The pieces are
// the same on all ranks and include a rank's own block.
func (g *Geometry) Spans(f func(off, n int64)) {
	for i, n := range g.counts {
		f(g.displs[i], n)
	}
}
