package sim

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
)

// memory holds one rank's buffers of one collective. They are overwritten when the call has ended. A
// later read spreads garbage, which the verification on the reading rank finds. A later write is
// found by intact.
type memory struct {
	c             *collective
	rank          int     // rank in the communicator
	layout        *blocks // layout of recv
	send, recv    []byte  // an exchange has recv only
	marks         *marks  // replaces recv for a multicast of tags
	before, after []p2p.Copy
}

// region is a round's view of a memory: the part that the fabric may touch, and the protocol objects
// that say where data belongs.
type region struct {
	mem        *memory
	geo        *mcast.Geometry
	placements []*mcast.Placement // multicast: by stream
	inbox      *p2p.Inbox         // point to point
	held       map[int][]*packet  // by receive: pieces that arrived before their turn
	base       int64              // offset of the round in the buffer
	open       bool
	reduction
}

// countSent and countReceived count payload at the boundary of the host.
func (r *region) countSent(k *packet) { r.mem.c.sent[r.mem.rank] += int64(k.bytes) }

func (r *region) countReceived(k *packet) {
	r.mem.c.received[r.mem.rank] += int64(k.bytes)
	r.mem.c.arrived++
}

// newMemory creates the buffers of a rank. The send buffer of a reduction is as large as all blocks, and
// the receive buffer has room for all sums, with garbage until they arrive. Memory that the rank has to
// write is garbage before that.
func newMemory(c *collective, rank int, p *p2p.Plan) *memory {
	m := &memory{c: c, rank: rank, layout: c.layout(rank, p)}
	if c.plan != nil && !c.move {
		m.marks = newMarks(c.want())
		own := c.block(c.want(), rank)
		if c.inPlace {
			m.marks.write(c.start(rank), own)
		} else {
			m.send = bytes.Clone(own)
		}
		return m
	}
	m.recv = make([]byte, m.layout.memory())
	if p != nil {
		m.before, m.after = p.Before, p.After
	}
	if c.exchange != nil {
		fillPoison(m.recv)
		m.forEach(func(b []byte, stream int, received bool) {
			if !received {
				c.fill(b, stream)
			}
		})
		return m
	}
	own := c.block(m.recv, rank)
	switch {
	case c.reduces:
		own = make([]byte, c.memory())
		m.send = own
		fillPoison(m.recv)
	case !c.inPlace:
		own = make([]byte, len(own))
		m.send = own
	}
	c.fill(own, rank)
	return m
}

// copy returns the buffers with their current content.
func (m *memory) copy() *memory {
	n := *m
	n.send, n.recv = bytes.Clone(m.send), bytes.Clone(m.recv)
	if m.marks != nil {
		n.marks = &marks{want: m.marks.want, right: slices.Clone(m.marks.right)}
	}
	return &n
}

// forEach calls f for every block of an exchange in the buffer, with its number.
func (m *memory) forEach(f func(b []byte, stream int, received bool)) {
	i := 0
	m.c.exchange.forEach(m.rank, func(from, to int, _ int64, received bool) {
		f(m.layout.block(m.recv, i), m.c.exchange.stream(from, to), received)
		i++
	})
}

// copyOwn puts the rank's own block in place. The input of a reduction stays where it is.
func (m *memory) copyOwn() {
	switch {
	case m.c.exchange != nil:
		m.carryOut(m.before)
	case m.c.reduces:
		if len(m.c.members) == 1 {
			copy(m.recv, m.send)
		}
	case m.c.inPlace:
	case m.marks != nil:
		m.marks.write(m.c.start(m.rank), m.send)
	default:
		copy(m.c.block(m.recv, m.rank), m.send)
	}
}

// carryOut carries out the copies of a plan.
func (m *memory) carryOut(copies []p2p.Copy) {
	for _, c := range copies {
		copy(m.span(c.To, c.Len), m.span(c.From, c.Len))
	}
}

// span returns a range of the buffer.
func (m *memory) span(off, n int64) []byte { return m.recv[m.layout.pos(off):m.layout.pos(off+n)] }

// load reads the payload of a packet: from the input of a reduction, from the send buffer for a
// multicast, or else from the receive buffer.
func (m *memory) load(k *packet) {
	k.data = k.data[:0]
	skip, left := k.off, int64(k.bytes)
	for _, p := range k.parts {
		if skip >= p.Len {
			skip -= p.Len
			continue
		}
		n := min(p.Len-skip, left)
		k.data = append(k.data, m.span(p.Off+skip, n)...)
		skip, left = 0, left-n
	}
	if k.parts != nil {
		return
	}
	buf, at, end := m.recv, m.layout.pos(k.off), m.layout.pos(k.off+left)
	switch {
	case k.input:
		buf = m.send
	case k.kind == pktChunk && !m.c.inPlace && !m.c.reduces:
		own := m.c.start(m.rank)
		buf, at, end = m.send, at-own, end-own
	case m.marks != nil:
		k.data = m.marks.appendTo(k.data, at, end)
		return
	}
	k.data = append(k.data, buf[at:end]...)
}

// placeMode says how to place a payload: replace the content, add to it, or store its sum with the
// input, which is the first sum.
type placeMode uint8

const (
	put placeMode = iota
	add
	addToInput
)

func (m *memory) place(off int64, data []byte, mode placeMode) {
	at := m.layout.pos(off)
	if m.marks != nil {
		m.marks.write(at, data)
		return
	}
	dst := m.recv[at : at+int64(len(data))]
	switch mode {
	case put:
		copy(dst, data)
	case add:
		m.c.sum(dst, dst, data)
	case addToInput:
		m.c.sum(dst, m.send[at:], data)
	}
}

// placeApart stores the sum of a payload and of the range at base, which is input or another sum.
func (m *memory) placeApart(off, base int64, data []byte) {
	at, from := m.layout.pos(off), m.layout.pos(base)
	other := m.recv
	if from < int64(len(m.send)) {
		other = m.send
	}
	m.c.sum(m.recv[at:at+int64(len(data))], other[from:], data)
}

// addBytes adds two operands of len(b) bytes.
func addBytes(sum, a, b []byte) {
	for i, x := range b {
		sum[i] = a[i] + x
	}
}

// addFloats adds two operands of len(b)/4 numbers.
func addFloats(sum, a, b []byte) {
	le := binary.LittleEndian
	for i := 0; i+4 <= len(b); i += 4 {
		x := math.Float32frombits(le.Uint32(a[i:])) + math.Float32frombits(le.Uint32(b[i:]))
		le.PutUint32(sum[i:], math.Float32bits(x))
	}
}

// verify compares the result with the ranks' contributions. A rank of an exchange must still have what it
// sent as well.
func (m *memory) verify() bool {
	c := m.c
	switch {
	case c.exchange != nil:
		right := true
		var want []byte
		m.forEach(func(b []byte, stream int, _ bool) {
			want = append(want[:0], b...)
			c.fill(want, stream)
			right = right && bytes.Equal(b, want)
		})
		return right
	case m.marks != nil:
		return m.marks.complete()
	case c.toRoot && m.rank != c.root:
		return true
	case c.scatters:
		return bytes.Equal(c.block(m.recv, m.rank), c.block(c.want(), m.rank))
	}
	return bytes.Equal(m.recv[:c.memory()], c.want())
}

const poisonByte = 0xa5

func (m *memory) poison() {
	fillPoison(m.send)
	fillPoison(m.recv)
	if m.marks != nil {
		m.marks.free()
	}
}

func fillPoison(b []byte) {
	for i := range b[:min(64, len(b))] {
		b[i] = poisonByte
	}
	for n := 64; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// intact reports whether nothing has been written since poison.
func (m *memory) intact() bool {
	return bytes.Count(m.send, []byte{poisonByte}) == len(m.send) &&
		bytes.Count(m.recv, []byte{poisonByte}) == len(m.recv) && (m.marks == nil || !m.marks.written)
}

// digest computes the digest of the data that a round received.
func (m *memory) digest(g *mcast.Geometry) uint64 {
	var sum uint32
	var tags []byte
	g.Spans(func(off, n int64) {
		if m.marks == nil {
			sum = crc32.Update(sum, crc32.IEEETable, m.span(off, n))
			return
		}
		tags = m.marks.appendTo(tags[:0], m.layout.pos(off), m.layout.pos(off+n))
		sum = crc32.Update(sum, crc32.IEEETable, tags)
	})
	return uint64(sum)
}
