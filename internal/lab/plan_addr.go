package lab

import (
	"encoding/binary"
	"net"
	"net/netip"

	"github.com/allcast/allcast/internal/topology"
)

// Addresses. Each leaf has a /24 in 10.0.0.0/9, by its number, so that the switches above need
// one route per leaf. The cables to its hosts are /31s in it, and the host has the odd address.
// Cables between switches are /31s from 172.16.0.0/12. All addresses exist only in the lab's
// namespaces, so the machine itself may use the same ones.
const (
	hostNet   = 10 << 24
	switchNet = 172<<24 | 16<<16
	leafBits  = 24

	// backgroundNet holds an address per leaf, for the traffic of other jobs. It is the last /16 of switchNet's /12,
	// which cables do not reach: maxNodes switches have fewer than 32,768 of them.
	backgroundNet  = 172<<24 | 31<<16
	backgroundPort = 9 // discard (RFC 863)
)

// Groups are organisation-local (RFC 2365). All addresses and ports differ, and the ports are
// below the kernel's ephemeral ports.
const (
	groupNet  = 239<<24 | 192<<16 | 76<<8
	groupPort = 20000
)

func address(a uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], a)
	return netip.AddrFrom4(b)
}

func groups(n int) []netip.AddrPort {
	list := make([]netip.AddrPort, n)
	for i := range list {
		list[i] = netip.AddrPortFrom(address(groupNet+uint32(i)+1), uint16(groupPort+i))
	}
	return list
}

// leafNet returns the prefix of all hosts of a leaf.
func (p *Plan) leafNet(leaf topology.NodeID) netip.Prefix {
	return netip.PrefixFrom(address(hostNet+uint32(int(leaf)-p.Graph.Hosts)<<(32-leafBits)), leafBits)
}

// cableAddrs returns the addresses of a cable's lower and upper end.
func (p *Plan) cableAddrs(c int) (lower, upper netip.Addr) {
	hosts := p.Graph.Hosts
	if c >= hosts {
		base := uint32(switchNet + 2*(c-hosts))
		return address(base), address(base + 1)
	}
	first := p.leafNet(p.Graph.Links[2*c].To).Addr().As4()
	// A leaf has at most maxPorts hosts, so their addresses fit its /24.
	base := binary.BigEndian.Uint32(first[:]) + 2*uint32(p.Graph.Slot(c))
	return address(base + 1), address(base)
}

// cableMACs returns the locally administered addresses of a cable's ends. Because they are known
// in advance, neighbours are static, and no ARP shows up in the counters.
func cableMACs(c int) (lower, upper net.HardwareAddr) {
	mac := func(end byte) net.HardwareAddr {
		return net.HardwareAddr{0x02, 0xac, end, byte(c >> 16), byte(c >> 8), byte(c)}
	}
	return mac(0), mac(1)
}
