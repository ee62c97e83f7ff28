package sim

import (
	"bytes"
	"hash/crc32"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
)

// memory holds one rank's buffers of one collective. They are overwritten when the call has ended. A
// later read spreads garbage, which the verification on the reading rank finds. A later write is
// found by intact.
type memory struct {
	c          *collective
	rank       int // rank in the communicator
	send, recv []byte
}

// region is a round's view of a memory: the part that the fabric may touch, and the protocol objects
// that say where data belongs.
type region struct {
	mem        *memory
	geo        *mcast.Geometry
	placements []*mcast.Placement // multicast: by subgroup
	inbox      *p2p.Inbox         // point to point
	held       map[int][]*packet  // by receive: pieces that arrived before their turn
	open       bool
}

// countSent and countReceived count payload at the boundary of the host.
func (r *region) countSent(k *packet) { r.mem.c.sent[r.mem.rank] += int64(k.bytes) }

func (r *region) countReceived(k *packet) { r.mem.c.received[r.mem.rank] += int64(k.bytes) }

// newMemory creates the buffers of a rank. The send buffer of a reduction is as large as all blocks, and
// the receive buffer has room for all sums, with garbage until they arrive.
func newMemory(c *collective, rank int) *memory {
	m := &memory{c: c, rank: rank, recv: make([]byte, c.size())}
	own := c.block(m.recv, rank)
	switch {
	case c.reduces:
		own = make([]byte, c.size())
		m.send = own
		fillPoison(m.recv)
	case !c.inPlace:
		own = make([]byte, len(own))
		m.send = own
	}
	c.fill(own, rank)
	return m
}

// copyOwn puts the rank's own block in place. The input of a reduction stays where it is, unless the
// network computes the reduction.
func (m *memory) copyOwn() {
	switch {
	case m.c.reduces:
		if m.c.p2p == nil || len(m.c.members) == 1 {
			copy(m.recv, m.send)
		}
	case !m.c.inPlace:
		copy(m.c.block(m.recv, m.rank), m.send)
	}
}

// load reads the payload of a packet: from the input of a reduction, from the send buffer for a
// multicast, or else from the receive buffer.
func (m *memory) load(k *packet) {
	buf, at := m.recv, m.c.at(k.off)
	switch {
	case k.input:
		buf = m.send
	case k.kind == pktChunk && !m.c.inPlace:
		buf, at = m.send, at-m.c.start(m.rank)
	}
	k.data = append(k.data[:0], buf[at:at+m.c.width(int64(k.bytes))]...)
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
	at := m.c.at(off)
	dst := m.recv[at : at+int64(len(data))]
	switch mode {
	case put:
		copy(dst, data)
	case add:
		addBytes(dst, dst, data)
	case addToInput:
		addBytes(dst, m.send[at:], data)
	}
}

// addBytes adds two operands of len(b) bytes.
func addBytes(sum, a, b []byte) {
	for i, x := range b {
		sum[i] = a[i] + x
	}
}

// verify compares the result with the ranks' contributions.
func (m *memory) verify() bool {
	got, want := m.recv, m.c.want()
	if m.c.scatters {
		got, want = m.c.block(got, m.rank), m.c.block(want, m.rank)
	}
	return bytes.Equal(got, want)
}

const poisonByte = 0xa5

func (m *memory) poison() {
	fillPoison(m.send)
	fillPoison(m.recv)
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
		bytes.Count(m.recv, []byte{poisonByte}) == len(m.recv)
}

// digest computes the digest of the data that a round received.
func (m *memory) digest(g *mcast.Geometry) uint64 {
	var sum uint32
	g.Spans(func(off, n int64) {
		if n > 0 {
			last := m.c.at(off+n-1) + m.c.width(1)
			sum = crc32.Update(sum, crc32.IEEETable, m.recv[m.c.at(off):last])
		}
	})
	return uint64(sum)
}
