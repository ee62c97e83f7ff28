package ip

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/wire"
)

func TestMaxPayload(t *testing.T) {
	for _, c := range []struct {
		mtu  int
		v6   bool
		want int
	}{
		{1500, false, 1456},
		{1500, true, 1436},
		{9000, false, 8956},
		{9000, true, 8936},
		{65536, false, MaxChunk},
		{65536, true, MaxChunk},
		{45, false, 1},
		{44, false, 0},
		{0, true, 0},
	} {
		if got := MaxPayload(c.mtu, c.v6); got != c.want {
			t.Errorf("MaxPayload(%d, %v) = %d, not %d", c.mtu, c.v6, got, c.want)
		}
	}
	for chunk := 1; chunk <= MaxChunk; chunk++ {
		n := (&mcastPlan{McastConfig: McastConfig{Chunk: chunk}, head: wire.HeaderSize}).batch()
		if n < 1 || n > 64 || n*(chunk+wire.HeaderSize) > 65507 {
			t.Fatalf("a batch of %d chunks of %d bytes", n, chunk)
		}
	}
}

// Streams have the address of their subgroup, and a port that no other stream has. Linux gives any
// socket ports of its ephemeral range.
func TestAddStreams(t *testing.T) {
	for _, first := range []uint16{1, 20000, 32765, 40000, 65533} {
		groups := GroupsFor(uint64(first), 3, false)
		for i := range groups {
			groups[i] = netip.AddrPortFrom(groups[i].Addr(), first+uint16(i))
		}
		all, ports := AddStreams(groups, 5), map[uint16]bool{}
		for i, g := range all {
			if g.Addr() != groups[i%3].Addr() || i < 3 && g != groups[i] {
				t.Errorf("from port %d: stream %d has the group %v", first, i, g)
			}
			if first < 32768 && g.Port() >= 32768 || g.Port() == 0 || ports[g.Port()] {
				t.Errorf("from port %d: stream %d has the port %d", first, i, g.Port())
			}
			ports[g.Port()] = true
		}
		if len(all) != 15 {
			t.Errorf("from port %d: %d streams, want 15", first, len(all))
		}
	}
}

func TestGroupsFor(t *testing.T) {
	org, site := netip.MustParsePrefix("239.192.0.0/14"), netip.MustParsePrefix("ff15::/16")
	all := make(map[netip.AddrPort]bool)
	for seed := range uint64(2000) {
		for _, v6 := range []bool{false, true} {
			addrs, ports := make(map[netip.Addr]bool), make(map[uint16]bool)
			for _, g := range GroupsFor(seed, 16, v6) {
				scope := org
				if v6 {
					scope = site
				}
				if !g.Addr().IsMulticast() || !scope.Contains(g.Addr()) || g.Port() < 20000 || g.Port() > 32767 {
					t.Fatalf("seed %d: %v", seed, g)
				}
				addrs[g.Addr()], ports[g.Port()], all[g] = true, true, true
			}
			if len(addrs) != 16 || len(ports) != 16 {
				t.Fatalf("seed %d: %d addresses, %d ports", seed, len(addrs), len(ports))
			}
		}
	}
	if len(all) != 2000*2*16 {
		t.Errorf("%d groups of %d are different", len(all), 2000*2*16)
	}
}

// A configuration that cannot work is refused, with advice.
func TestMulticastErrors(t *testing.T) {
	good := mcastLoopback(t, 2, false)
	for _, c := range []struct {
		name string
		with func(c *McastConfig)
		want string
	}{
		{"no interface", func(c *McastConfig) { c.Interface = nil }, "name one"},
		{"down", func(c *McastConfig) { c.Interface.Flags = net.FlagMulticast }, "bring it up"},
		{"no multicast", func(c *McastConfig) { c.Interface.Flags = net.FlagUp }, "multicast on"},
		{"address", func(c *McastConfig) { c.Local = netip.MustParseAddr("192.0.2.77") }, "not an address of interface"},
		{"no address", func(c *McastConfig) { c.Local = netip.Addr{} }, "not an address of interface"},
		{"no groups", func(c *McastConfig) { c.Groups = nil }, "one per subgroup"},
		{
			"unicast", func(c *McastConfig) { c.Groups[1] = netip.MustParseAddrPort("127.0.0.1:20000") },
			"not a multicast group",
		},
		{"version", func(c *McastConfig) { c.Groups[1] = netip.MustParseAddrPort("[ff15::1]:20000") }, "same IP version"},
		{"port", func(c *McastConfig) { c.Groups[1] = netip.AddrPortFrom(c.Groups[1].Addr(), 0) }, "no port"},
		{
			"streams", func(c *McastConfig) { c.Groups, c.Subgroups = AddStreams(c.Groups, 2)[:3], 2 },
			"each needs the same number of streams",
		},
		{
			"addresses", func(c *McastConfig) {
				c.Groups, c.Subgroups = AddStreams(c.Groups, 2), 2
				c.Groups[2] = netip.AddrPortFrom(c.Groups[1].Addr(), c.Groups[2].Port())
			}, "its streams share an address",
		},
		{"twice", func(c *McastConfig) { c.Groups[1] = c.Groups[0] }, "two streams have group"},
		{"chunk", func(c *McastConfig) { c.Chunk = MaxChunk + 1 }, "agree on a smaller chunk"},
		{"MTU", func(c *McastConfig) { c.Interface.MTU, c.Chunk = 1500, 4096 }, "at most 1456"},
		{"tiny MTU", func(c *McastConfig) { c.Interface.MTU = 40 }, "too small"},
		{"TTL", func(c *McastConfig) { c.TTL = 256 }, "TTL"},
		{"DSCP", func(c *McastConfig) { c.DSCP = 64 }, "DSCP"},
		{"buffer", func(c *McastConfig) { c.ReceiveBuffer = -1 }, "receive buffer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good
			ifc := *good.Interface
			cfg.Interface = &ifc
			cfg.Groups = append([]netip.AddrPort(nil), good.Groups...)
			c.with(&cfg)
			m, err := OpenMulticast(cfg)
			if err == nil {
				_ = m.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\ndoes not say %q", err, c.want)
			}
		})
	}
}
