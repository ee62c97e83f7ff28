package ip

import (
	"fmt"
	"io"

	"github.com/allcast/allcast/internal/fabric"
)

// openPortable opens plain sockets of the standard library, which every system has: one datagram per
// call, and one copy on each side.
func openPortable(p *mcastPlan) (*Multicast, error) {
	ports := make(map[uint16]bool)
	m := &Multicast{}
	if p.cut > 0 {
		return nil, fmt.Errorf("multicast: chunks of several packets need Linux and its super-packets; "+
			"use chunks of at most %d bytes", p.cut-p.head)
	}
	buffer := p.ReceiveBuffer
	for _, g := range p.Groups {
		// The standard library binds to the wildcard address, so only ports distinguish groups.
		if ports[g.Port()] {
			return nil, fmt.Errorf("multicast: two subgroups have port %d; here each needs its own", g.Port())
		}
		ports[g.Port()] = true
		s, err := newPortableSender(p, g)
		if err != nil {
			_ = m.Close() // the first error matters
			return nil, err
		}
		m.closers = append([]io.Closer{s}, m.closers...)
		r, err := newPortableReceiver(p, g, s.own)
		if err != nil {
			_ = m.Close() // the first error matters
			return nil, err
		}
		m.closers = append([]io.Closer{r}, m.closers...)
		m.senders = append(m.senders, s)
		m.receivers = append(m.receivers, r)
		buffer = r.buffer
	}
	size := p.Chunk + p.head + udpHeader + mcastIPHeader(p.v6)
	m.caps = fabric.Capabilities{
		Chunk:    p.Chunk,
		Batch:    1,
		Room:     mcastRoom(buffer, mcastFrameCharge(size)),
		Overhead: mcastOverhead(p.v6, p.head, 1),
		Header:   p.head,
	}
	const none = "plain sockets"
	f := Features{
		Sockets:   mcastPortable,
		GSOReason: none, GROReason: none, FilterReason: none,
		RecvBufferWanted: p.ReceiveBuffer, RecvBufferGot: buffer,
	}
	m.features = func() Features { return f }
	return m, nil
}
