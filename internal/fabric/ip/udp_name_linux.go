package ip

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// udpSockaddr is an address for bind. The kernel uses the zone only for link-local addresses.
func udpSockaddr(p *mcastPlan, a netip.AddrPort) unix.Sockaddr {
	if p.v6 {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: uint32(p.Interface.Index)}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func udpSockname(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("multicast: getsockname: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("multicast: getsockname: unknown address %T", sa)
}

// udpName is an address in the form of sendmsg and recvmsg, with room for both IP versions.
type udpName struct {
	raw  unix.RawSockaddrInet6
	size uint32
}

func newUDPName(p *mcastPlan, a netip.AddrPort) *udpName {
	n := &udpName{}
	if p.v6 {
		n.raw.Family = unix.AF_INET6
		n.raw.Addr = a.Addr().As16()
		n.raw.Scope_id = uint32(p.Interface.Index)
		n.size = unix.SizeofSockaddrInet6
	} else {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&n.raw))
		v4.Family = unix.AF_INET
		v4.Addr = a.Addr().As4()
		n.size = unix.SizeofSockaddrInet4
	}
	// Both forms have the port at the same offset, in network order.
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&n.raw.Port))[:], a.Port())
	return n
}

// same reports whether address and port are equal.
func (n *udpName) same(o *udpName) bool {
	if n.raw.Family != o.raw.Family || n.raw.Port != o.raw.Port {
		return false
	}
	if n.raw.Family == unix.AF_INET6 {
		return n.raw.Addr == o.raw.Addr
	}
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&n.raw)).Addr == (*unix.RawSockaddrInet4)(unsafe.Pointer(&o.raw)).Addr
}

func (n *udpName) pointer() *byte { return (*byte)(unsafe.Pointer(&n.raw)) }
