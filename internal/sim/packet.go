package sim

import "github.com/allcast/allcast/internal/topology"

// Header sizes in bytes, as on InfiniBand. UD multicast: LRH 8, GRH 40, BTH 12, DETH 8, immediate 4,
// ICRC 4, VCRC 2. RC: LRH 8, BTH 12, ICRC 4, VCRC 2; a read request adds RETH 16, and a read response
// AETH 4.
const (
	udHeader       = 78
	rcHeader       = 26
	readHeader     = rcHeader + 16
	responseHeader = rcHeader + 4
	putHeader      = rcHeader + 24 // communicator, operation, index of the send, length
)

type packetKind uint8

const (
	pktChunk    packetKind = iota // a multicast datagram
	pktMessage                    // a reliable message
	pktRead                       // a request to read n chunks
	pktResponse                   // one chunk of the answer
	pktPut                        // a piece of a point-to-point send
	pktSum                        // a chunk on its way up the reduction tree
	pktResult                     // a sum on its way down
)

// Traffic classes of a link. Control has priority and never waits behind bulk.
const (
	classControl = iota
	classBulk
	trafficClasses
)

// packet is one packet on the network. Copies that a switch makes share it.
type packet struct {
	refs         int
	kind         packetKind
	trafficClass uint8
	last         bool // whether it is the last of its batch or read
	src          int
	dst          int
	size         int64 // bytes on the wire
	born         int64 // time when it left its host
	bytes        int   // bytes of payload
	tree         *topology.Tree

	comm uint32
	seq  uint64
	sub  int
	psn  uint32
	n    uint32 // number of chunks of its batch or read
	all  int64  // size of its send in bytes
	imm  uint32
	msg  []byte
	read *read // read of a request or a response

	input bool // reduction: whether the payload is from the input

	// The NIC reads the payload from its source when it starts to send.
	from *region
	off  int64 // offset in the source's receive buffer
	at   int64 // offset in the source's send buffer
	pay  payload
	cell int // chunk of the collective for accounting, or -1
}

// hop is a packet inside a switch. It occupies the input buffer of the link that it arrived over until
// the last copy starts to leave.
type hop struct {
	pkt  *packet
	in   topology.LinkID // NoLink for a sum, which occupies an aggregator
	left int
	at   topology.NodeID
	cell int // chunk of the sum
}

// pools hold free lists, so that the simulator does not allocate for every packet.
type pools struct {
	packets []*packet
	hops    []*hop
}

func (p *pools) packet() *packet {
	if n := len(p.packets); n > 0 {
		k := p.packets[n-1]
		p.packets = p.packets[:n-1]
		msg, data := k.msg[:0], k.pay.data[:0]
		*k = packet{refs: 1, cell: -1, msg: msg}
		k.pay.data = data
		return k
	}
	return &packet{refs: 1, cell: -1}
}

func (p *pools) release(k *packet) {
	if k.refs--; k.refs == 0 {
		k.from, k.read = nil, nil
		p.packets = append(p.packets, k)
	}
}

func (p *pools) hop(k *packet, in topology.LinkID, left int) *hop {
	if n := len(p.hops); n > 0 {
		h := p.hops[n-1]
		p.hops = p.hops[:n-1]
		*h = hop{pkt: k, in: in, left: left}
		return h
	}
	return &hop{pkt: k, in: in, left: left}
}

func (p *pools) sumHop(k *packet, at topology.NodeID, cell, left int) *hop {
	h := p.hop(k, topology.NoLink, left)
	h.at, h.cell = at, cell
	return h
}
