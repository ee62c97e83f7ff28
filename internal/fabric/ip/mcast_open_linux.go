package ip

import (
	"cmp"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
)

// openMulticast opens the sockets with the features that passed the self-test.
func openMulticast(p *mcastPlan) (*Multicast, error) {
	t, err := udpSelfTest(p.short())
	if err != nil {
		return nil, err
	}
	if p.cut > 0 && t.gso+t.gro != "" {
		return nil, fmt.Errorf("multicast: chunks of several packets need super-packets, sent and "+
			"received: %s; use chunks of at most %d bytes", cmp.Or(t.gso, t.gro), p.cut-p.head)
	}
	m := &Multicast{cut: p.cut, subgroups: p.Subgroups}
	f := Features{
		Sockets: mcastLinux,
		GSO:     t.gso == "", GSOReason: t.gso,
		GRO: t.gro == "", GROReason: t.gro,
		Filter:           true,
		RecvBufferWanted: p.ReceiveBuffer,
		ChargeSingle:     t.single, ChargeBatch: t.batch,
	}
	for _, g := range p.Groups {
		if err := m.openGroup(p, g, &f); err != nil {
			_ = m.Close() // the first error matters
			return nil, err
		}
	}
	batch := 1
	if f.GSO {
		batch = p.batch()
	}
	m.caps = p.capabilities(batch, f.RecvBufferGot, t.charge(p.short())*p.packets())
	m.caps.Placer, m.caps.Allocator = p.Placer, p.Allocator
	m.giveGroups(p)
	if p.Poller != nil {
		m.caps.Poller = p.Poller
		m.caps.NewPoller = func() (fabric.Poller, error) { return NewPoller() }
	}
	m.features = func() Features {
		now := f
		for _, s := range m.senders {
			if why := s.(*udpSender).noGSO.Load(); why != nil {
				now.GSO, now.GSOReason = false, *why
			}
		}
		return now
	}
	return m, nil
}

// openGroup opens the two sockets of a group. After an error, Close closes those that are open.
func (m *Multicast) openGroup(p *mcastPlan, g netip.AddrPort, f *Features) error {
	fd, own, err := udpSendSocket(p, p.TTL)
	if err != nil {
		return err
	}
	s := newUDPSender(p, g, fd, f.GSO, f.GRO)
	m.senders = append(m.senders, s)
	var noFilter error
	filtered := s.filtered
	fd, err = udpReceiveSocket(p, g, func(fd int) error {
		// Ranks on one machine share the group.
		options := []udpOption{{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}}
		if f.GRO {
			options = append(options, udpGROOn)
		}
		if err := udpSetOptions(fd, options...); err != nil {
			return err
		}
		if f.RecvBufferGot, f.RecvBufferForced, err = udpSetBuffer(fd, p.ReceiveBuffer); err != nil {
			return err
		}
		if p.Filter != nil {
			filtered, err = p.Filter(fd, g, own)
			return err
		}
		noFilter = udpAttachFilter(fd, own)
		return nil
	})
	if err != nil {
		return err
	}
	r, err := newUDPReceiver(p, g, fd)
	if err != nil {
		return err
	}
	if noFilter != nil {
		f.Filter, f.FilterReason = false, noFilter.Error()
		r.in.own = newUDPName(p, own)
	} else {
		r.filtered = filtered
	}
	m.receivers = append(m.receivers, r)
	return nil
}

var udpGROOn = udpOption{"UDP_GRO", unix.SOL_UDP, unix.UDP_GRO, 1}
