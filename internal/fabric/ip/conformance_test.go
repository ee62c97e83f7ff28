package ip

import (
	"net"
	"net/netip"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/fabrictest"
	"github.com/allcast/allcast/internal/wire"
)

// The multicast side keeps the contract in all variants, with a poller and without.
func TestMulticastConformance(t *testing.T) {
	mcastEach(t, func(t *testing.T, v mcastVariant) {
		t.Helper()
		var groups []netip.AddrPort
		fabrictest.TestMulticast(t, fabrictest.Network{
			Multicast: func(t *testing.T, ranks int) (all []fabric.Multicast) {
				t.Helper()
				cfg := mcastLoopback(t, 2, v.v6)
				cfg.Groups, cfg.Subgroups = AddStreams(cfg.Groups, 2), 2
				groups = cfg.Groups
				for i := range ranks {
					if p, err := NewPoller(); i%2 == 1 && !v.portable && err == nil {
						cfg.Poller = p
						t.Cleanup(func() { _ = p.Close() })
					} else if err == nil {
						_ = p.Close()
					}
					all = append(all, v.open(t, cfg))
				}
				return all
			},
			Foreign: func(t *testing.T, _ []fabric.Multicast) {
				t.Helper()
				cfg := mcastLoopback(t, 1, v.v6)
				p, err := newMcastPlan(cfg)
				if err != nil {
					t.Fatal(err)
				}
				stranger, err := newPortableSender(p, groups[0])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = stranger.Close() })
				for n := range wire.HeaderSize {
					if _, err := stranger.conn.WriteTo(make([]byte, n), net.UDPAddrFromAddrPort(groups[0])); err != nil {
						t.Fatal(err)
					}
				}
			},
		})
	})
}

// The reliable side keeps the contract over IPv4 and IPv6, and under each protection. Odd ranks have
// pollers.
func TestTCPConformance(t *testing.T) {
	for _, local := range tcpFamilies {
		t.Run(local.String(), func(t *testing.T) { tcpConformance(t, local) })
	}
	tcpProtect(t, func(t *testing.T) {
		t.Helper()
		tcpConformance(t, tcpV4)
	})
}

func tcpConformance(t *testing.T, local netip.Addr) {
	t.Helper()
	fabrictest.TestReliable(t, fabrictest.Network{Reliable: func(t *testing.T,
		handlers []fabric.Handler,
	) *fabrictest.World {
		t.Helper()
		w := openTCPWorld(t, local, handlers, nil)
		out := &fabrictest.World{Kill: func(rank int) { w.ranks[rank].kill() }}
		for _, r := range w.ranks {
			out.Ranks = append(out.Ranks, r.Reliable())
		}
		return out
	}})
}

// kill breaks all connections of a rank, as the kernel does when the process dies.
func (t *TCP) kill() {
	_ = t.cfg.Listener.Close()
	for _, p := range t.others {
		p.mu.Lock()
		if p.out != nil {
			_ = p.out.SetLinger(0)
			_ = p.out.Close()
		}
		if p.in != nil {
			p.in.close()
		}
		p.mu.Unlock()
	}
}
