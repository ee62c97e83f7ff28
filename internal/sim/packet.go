package sim

import (
	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/wire"
)

// Header sizes in bytes, as on InfiniBand. UD multicast: LRH 8, GRH 40, BTH 12, DETH 8, immediate 4,
// ICRC 4, VCRC 2. RC: LRH 8, BTH 12, ICRC 4, VCRC 2; a read request adds RETH 16, and a read response
// AETH 4. UD unicast has no GRH and no immediate.
const (
	udHeader       = 78
	rcHeader       = 26
	readHeader     = rcHeader + 16
	responseHeader = rcHeader + 4
	putHeader      = rcHeader + 24 // communicator, operation, index of the send, length
	sumHeader      = 34 + inc.HeaderSize
)

type packetKind uint8

const (
	pktChunk    packetKind = iota // a multicast datagram
	pktMessage                    // a reliable message
	pktRead                       // a request to read n chunks
	pktResponse                   // one chunk of the answer
	pktPut                        // a piece of a point-to-point send
	pktSum                        // a contribution to an aggregator, a datagram
	pktResult                     // a sum for its owner, a datagram
	pktWant                       // an aggregator's answer to an offer, a datagram
	pktForeign                    // a packet of another job; src is the number of its flow
)

// Traffic classes of a link. Control has priority and never waits behind bulk.
const (
	classControl = iota
	classBulk
	trafficClasses
)

// opKey names an operation of a communicator.
type opKey struct {
	comm uint32
	seq  uint64
}

// packet is one packet on the network. Copies that a switch makes share it.
type packet struct {
	opKey
	source
	refs         int
	kind         packetKind
	trafficClass uint8
	last         bool // whether it is the last of its batch or read
	src          int
	dst          int
	size         int64  // bytes on the wire
	bytes        int    // bytes of payload
	data         []byte // message, or payload as in memory
	born         int64  // time when it left its host
	tree         *topology.Tree
	stream       int
	psn          uint32
	imm          uint32
	token        uint64 // of its operation
	n            uint32 // number of chunks of its batch or read
	all          int64  // size of its send, or of the contribution that it carries or offers, in bytes
	read         *read  // read of a request or a response
	cell         int    // chunk of the collective for accounting, or -1
	head         inc.Header
}

// isDatagram reports whether the network may drop, duplicate and reorder the packet on its way to a host.
func (k *packet) isDatagram() bool {
	return k.kind == pktChunk || k.kind == pktSum || k.kind == pktResult || k.kind == pktWant
}

// mayDrop reports whether a full queue of a switch drops the packet.
func (k *packet) mayDrop() bool { return k.isDatagram() || k.kind == pktForeign }

// source is the buffer from which the NIC reads a payload when it starts to send.
type source struct {
	from  *region
	off   int64       // offset in the receive buffer, or in the piece if it consists of parts
	parts []wire.Span // parts of the piece
	input bool        // reduction: whether the payload is from the input
}

// hop is a packet inside a switch. It occupies the input buffer of the link that it arrived over until
// the last copy starts to leave.
type hop struct {
	in   topology.LinkID
	left int
}

// pool is a free list, so that the simulator does not allocate for every packet.
type pool[T any] struct{ free []*T }

func (p *pool[T]) get() *T {
	n := len(p.free)
	if n == 0 {
		return new(T)
	}
	x := p.free[n-1]
	p.free = p.free[:n-1]
	return x
}

func (p *pool[T]) put(x *T) { p.free = append(p.free, x) }

type pools struct {
	packets pool[packet]
	hops    pool[hop]
	reports pool[mcast.Report]
}

func (p *pools) packet(kind packetKind, class uint8, key opKey, src, dst int) *packet {
	k := p.packets.get()
	*k = packet{refs: 1, cell: -1, data: k.data[:0], kind: kind, trafficClass: class, opKey: key, src: src, dst: dst}
	return k
}

func (p *pools) release(k *packet) {
	if k.refs--; k.refs == 0 {
		k.from, k.parts, k.read = nil, nil, nil
		p.packets.put(k)
	}
}

func (p *pools) releaseAll(packets []*packet) {
	for _, k := range packets {
		p.release(k)
	}
}

func (p *pools) hop(in topology.LinkID, left int) *hop {
	h := p.hops.get()
	*h = hop{in: in, left: left}
	return h
}

// report returns an empty report.
func (p *pools) report() *mcast.Report {
	r := p.reports.get()
	if r.Runs == nil {
		r.Runs = make([]mcast.PlacedRun, 0, mcast.MaxRuns)
	}
	return r
}

func (p *pools) recycle(r *mcast.Report) {
	clear(r.Runs)
	*r = mcast.Report{Runs: r.Runs[:0]}
	p.reports.put(r)
}
