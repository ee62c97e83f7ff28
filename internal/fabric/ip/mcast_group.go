package ip

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Ports of groups are above the registered ports in wide use, and below Linux's ephemeral range (32768
// to 60999), where any socket may be bound.
const (
	mcastFirstPort = 20000
	mcastPorts     = 32768 - mcastFirstPort
)

// GroupsFor derives n groups from a seed that the ranks share, such as the job's key. All addresses and
// all ports differ. A kernel or switch that ignores either of them still keeps subgroups apart.
//
// IPv4 groups are organisation-local (239.192.0.0/14, RFC 2365). IPv6 groups are transient and site-local
// (ff15::/16, RFC 4291). Their identifiers are from the range for dynamic assignment (RFC 3307); only the
// 32 bits of the identifier reach the Ethernet address.
func GroupsFor(seed uint64, n int, v6 bool) []netip.AddrPort {
	h := mcastMix(seed)
	groups := make([]netip.AddrPort, n)
	for i := range groups {
		port := uint16(mcastFirstPort + (h>>40+uint64(i))%mcastPorts)
		groups[i] = netip.AddrPortFrom(mcastGroup(h, uint32(i), v6), port)
	}
	return groups
}

// AddStreams returns the groups of per streams of each subgroup, given the groups of the subgroups. The
// streams of a subgroup share its address and differ by port. Ports follow those of the subgroups. They
// leave out Linux's ephemeral range, and all differ.
func AddStreams(groups []netip.AddrPort, per int) []netip.AddrPort {
	all := slices.Clone(groups)
	used := map[uint16]bool{}
	port := uint16(0)
	for _, g := range groups {
		used[g.Port()] = true
		port = max(port, g.Port())
	}
	for len(all) < len(groups)*per {
		if port++; port == mcastFirstPort+mcastPorts || port == 0 {
			port = mcastFirstPort
		}
		if !used[port] {
			used[port] = true
			all = append(all, netip.AddrPortFrom(all[len(all)%len(groups)].Addr(), port))
		}
	}
	return all
}

// CommGroup derives the group of a communicator in subgroup sub of n, from the seed of GroupsFor. It
// differs from the groups of the job, and from those of other communicators: ids are unique in a job. Only
// after more communicators than there are addresses do groups repeat.
func CommGroup(seed uint64, id uint32, sub, n int, v6 bool) netip.Addr {
	bits := mcastBits4
	if v6 {
		bits = mcastBits6
	}
	i := mcastIndex(id, sub, n) % (1<<bits - uint64(n))
	return mcastGroup(mcastMix(seed), uint32(n)+uint32(i), v6)
}

// CommGroupIn derives the group of a communicator as CommGroup does, within a prefix.
func CommGroupIn(prefix netip.Prefix, seed uint64, id uint32, sub, n int) netip.Addr {
	a := prefix.Masked().Addr().AsSlice()
	bits := min(len(a)*8-prefix.Bits(), 32)
	i := (mcastMix(seed) + mcastIndex(id, sub, n)) & (1<<bits - 1)
	low := a[len(a)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)|uint32(i))
	g, _ := netip.AddrFromSlice(a)
	return g
}

func mcastIndex(id uint32, sub, n int) uint64 { return uint64(id)*uint64(n) + uint64(sub) }

// The numbers of bits by which groups of IPv4 and IPv6 differ.
const (
	mcastBits4 = 18
	mcastBits6 = 31
)

func mcastGroup(h uint64, i uint32, v6 bool) netip.Addr {
	if v6 {
		a := [16]byte{0xff, 0x15}
		binary.BigEndian.PutUint32(a[8:], uint32(h>>32))
		binary.BigEndian.PutUint32(a[12:], 1<<31|(uint32(h)+i))
		return netip.AddrFrom16(a)
	}
	const base = 239<<24 | 192<<16
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], base|(uint32(h)+i)&(1<<mcastBits4-1))
	return netip.AddrFrom4(a)
}

// mcastMix is the finaliser of SplitMix64: each bit of the seed affects all bits of the result.
func mcastMix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
