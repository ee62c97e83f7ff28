package sim

import (
	"bytes"

	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/wire"
)

// moveLimit is the total size of receive buffers up to which payload is really moved. Beyond it, each
// chunk is represented by one tag.
const moveLimit = 192 << 20

// payload is the content of a packet.
type payload struct {
	data []byte
	tag  uint32
}

// memory holds one rank's buffers of one collective. They are overwritten when the call has ended. A
// later read spreads garbage, which the verification on the reading rank finds. A later write is
// found by intact.
type memory struct {
	c    *collective
	rank int // rank in the communicator
	// Bytes, or one tag per chunk.
	send, recv         []byte
	sendTags, recvTags []uint32
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

func newMemory(c *collective, rank int) *memory {
	m := &memory{c: c, rank: rank}
	if c.reduces {
		m.reduceInput()
		return m
	}
	own := c.counts[rank]
	if c.move {
		m.recv = make([]byte, c.displs[len(c.counts)])
		if c.inPlace {
			c.fill(m.recv[c.displs[rank]:][:own], rank)
		} else {
			m.send = make([]byte, own)
			c.fill(m.send, rank)
		}
		return m
	}
	m.recvTags = make([]uint32, c.cells[len(c.counts)])
	block := m.recvTags[c.cells[rank]:c.cells[rank+1]]
	if !c.inPlace {
		m.sendTags = make([]uint32, len(block))
		block = m.sendTags
	}
	for i := range block {
		block[i] = c.tag(c.cells[rank] + i)
	}
	return m
}

// reduceInput creates the buffers of a reduction: the input, as large as all blocks, and memory for all
// sums, which holds garbage until data arrives.
func (m *memory) reduceInput() {
	c := m.c
	if c.move {
		m.send, m.recv = make([]byte, c.total()), make([]byte, c.total())
		c.fill(m.send, m.rank)
		fillBytes(m.recv)
		return
	}
	m.sendTags, m.recvTags = make([]uint32, c.cells[len(c.counts)]), make([]uint32, c.cells[len(c.counts)])
	for i := range m.sendTags {
		m.sendTags[i] = c.input(m.rank, i)
	}
}

// copyOwn puts the rank's own block in place. The input of a reduction stays where it is, unless the
// network computes the reduction.
func (m *memory) copyOwn() {
	if m.c.reduces {
		if m.c.p2p == nil || len(m.c.members) == 1 {
			copy(m.recv, m.send)
			copy(m.recvTags, m.sendTags)
		}
		return
	}
	if m.c.inPlace {
		return
	}
	copy(m.recv[min(m.c.displs[m.rank], int64(len(m.recv))):], m.send)
	copy(m.recvTags[min(m.c.cells[m.rank], len(m.recvTags)):], m.sendTags)
}

// load reads n bytes at off of the receive buffer, or for a multicast the same data at offset at of the
// send buffer. The input of a reduction is its whole send buffer.
func (m *memory) load(p *payload, off, at int64, n int, own, input bool) {
	own = own && !m.c.inPlace
	switch {
	case input && m.c.move:
		p.data = append(p.data[:0], m.send[off:off+int64(n)]...)
	case input:
		p.tag = m.sendTags[m.c.cell(off)]
	case m.c.move && own:
		p.data = append(p.data[:0], m.send[at:at+int64(n)]...)
	case m.c.move:
		p.data = append(p.data[:0], m.recv[off:off+int64(n)]...)
	case own:
		p.tag = m.sendTags[at/int64(m.c.chunk)]
	default:
		p.tag = m.recvTags[m.c.cell(off)]
	}
}

// placeMode says how to place a payload: replace the content, add to it, or store its sum with the
// input, which is the first sum.
type placeMode uint8

const (
	put placeMode = iota
	add
	addToInput
)

func (m *memory) place(off int64, p *payload, mode placeMode) {
	reduce := mode != put
	switch {
	case m.c.move && mode == addToInput:
		for i, x := range p.data {
			m.recv[off+int64(i)] = m.send[off+int64(i)] + x
		}
	case mode == addToInput:
		cell := m.c.cell(off)
		m.recvTags[cell] = m.sendTags[cell] + p.tag
	case m.c.move && reduce:
		for i, x := range p.data {
			m.recv[off+int64(i)] += x
		}
	case m.c.move:
		copy(m.recv[off:off+int64(len(p.data))], p.data)
	case reduce:
		m.recvTags[m.c.cell(off)] += p.tag
	default:
		m.recvTags[m.c.cell(off)] = p.tag
	}
}

// verify compares the result with the ranks' contributions. A Reduce-Scatter leaves only the rank's own
// block as a result.
func (m *memory) verify() bool {
	c := m.c
	first, last := 0, len(c.counts)
	if c.kind == wire.ReduceScatter {
		first, last = m.rank, m.rank+1
	}
	if c.move {
		return bytes.Equal(m.recv[c.displs[first]:c.displs[last]], c.want()[c.displs[first]:c.displs[last]])
	}
	for i := c.cells[first]; i < c.cells[last]; i++ {
		if m.recvTags[i] != c.wantTag(i) {
			return false
		}
	}
	return true
}

const (
	poisonByte = 0xa5
	poisonTag  = 0
)

func (m *memory) poison() {
	fillBytes(m.send)
	fillBytes(m.recv)
	clear(m.sendTags)
	clear(m.recvTags)
}

func fillBytes(b []byte) {
	for i := range b {
		b[i] = poisonByte
	}
}

// intact reports whether nothing has been written since poison.
func (m *memory) intact() bool {
	for _, b := range [][]byte{m.send, m.recv} {
		for _, x := range b {
			if x != poisonByte {
				return false
			}
		}
	}
	for _, b := range [][]uint32{m.sendTags, m.recvTags} {
		for _, x := range b {
			if x != poisonTag {
				return false
			}
		}
	}
	return true
}
