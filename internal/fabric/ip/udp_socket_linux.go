package ip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/inherit"
)

// udpSocket makes a socket, and closes it again if setup fails.
func udpSocket(v6 bool, setup func(fd int) error) (int, error) {
	domain := unix.AF_INET
	if v6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("multicast: socket: %w", err)
	}
	inherit.FD(fd)
	if err := setup(fd); err != nil {
		_ = unix.Close(fd) // the first error matters
		return -1, err
	}
	return fd, nil
}

// udpOption is a socket option with a number for a value.
type udpOption struct {
	name              string
	level, opt, value int
}

func udpSetOptions(fd int, options ...udpOption) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			return fmt.Errorf("multicast: set %s to %d: %w", o.name, o.value, err)
		}
	}
	return nil
}

// udpSendSocket makes a socket that multicasts from the local address and a port of its own, only by the
// configured interface, and returns its address.
func udpSendSocket(p *mcastPlan, ttl int) (fd int, name netip.AddrPort, err error) {
	fd, err = udpSocket(p.v6, func(fd int) error {
		if err := udpSetOptions(fd, udpSendOptions(p, ttl)...); err != nil {
			return err
		}
		if !p.v6 {
			// By index, because many interfaces may share an address.
			m := unix.IPMreqn{Ifindex: int32(p.Interface.Index)}
			if err := unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &m); err != nil {
				return fmt.Errorf("multicast: send by interface %s (IP_MULTICAST_IF): %w", p.Interface.Name, err)
			}
		}
		if err := unix.Bind(fd, udpSockaddr(p, netip.AddrPortFrom(p.Local, 0))); err != nil {
			return fmt.Errorf("multicast: send from %v on %s: %w", p.Local, p.Interface.Name, err)
		}
		name, err = udpSockname(fd)
		return err
	})
	return fd, name, err
}

func udpSendOptions(p *mcastPlan, ttl int) []udpOption {
	// No rank sends to this socket, and foreign datagrams must not cost much.
	options := []udpOption{{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, 1}}
	if p.v6 {
		return append(options,
			udpOption{"IPV6_RECVERR", unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1}, // see Reported
			udpOption{"IPV6_MULTICAST_IF", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, p.Interface.Index},
			udpOption{"IPV6_MULTICAST_LOOP", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1},
			udpOption{"IPV6_MULTICAST_HOPS", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, ttl},
			udpOption{"IPV6_MTU_DISCOVER", unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DONT},
			udpOption{"IPV6_TCLASS", unix.IPPROTO_IPV6, unix.IPV6_TCLASS, p.DSCP << 2})
	}
	return append(options,
		udpOption{"IP_RECVERR", unix.IPPROTO_IP, unix.IP_RECVERR, 1}, // see Reported
		// Other ranks may run on this machine; the receive socket filters this rank's own datagrams.
		udpOption{"IP_MULTICAST_LOOP", unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1},
		udpOption{"IP_MULTICAST_TTL", unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, ttl},
		// A router (ipmr) drops a super-packet that carries DF: it looks larger than the MTU.
		udpOption{"IP_MTU_DISCOVER", unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT},
		udpOption{"IP_TOS", unix.IPPROTO_IP, unix.IP_TOS, p.DSCP << 2})
}

// udpReceiveSocket makes a socket that receives a group on the configured interface. Before the bind,
// prepare may set options that must hold from the first datagram on.
func udpReceiveSocket(p *mcastPlan, group netip.AddrPort, prepare func(fd int) error) (int, error) {
	return udpSocket(p.v6, func(fd int) error {
		// Without this, a socket also receives groups that other programs on this machine have joined. The
		// IPv6 option needs Linux 4.20. Without it, the bind to the group has the same effect.
		if p.v6 {
			if err := udpSetOptions(fd, udpOption{
				"IPV6_MULTICAST_ALL", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL, 0,
			}, udpOption{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}); err != nil {
				p.noComms = err
			}
		} else if err := udpSetOptions(fd, udpOption{
			"IP_MULTICAST_ALL", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0,
		}); err != nil {
			return err
		}
		if err := prepare(fd); err != nil {
			return err
		}
		local := group
		if p.CommGroup != nil && p.noComms == nil {
			// A socket that is bound to a group receives no other one. The options above and the filter
			// reject datagrams to other addresses.
			local = netip.AddrPortFrom(p.wildcard(), group.Port())
		}
		if err := unix.Bind(fd, udpSockaddr(p, local)); err != nil {
			return fmt.Errorf("multicast: bind to %v: %w; if another program has taken the port, choose another", group, err)
		}
		return udpJoin(p, fd, group.Addr())
	})
}

func udpJoin(p *mcastPlan, fd int, group netip.Addr) error {
	var err error
	if p.v6 {
		m := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(p.Interface.Index)}
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &m)
	} else {
		m := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(p.Interface.Index)}
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &m)
	}
	if err == nil {
		return nil
	}
	advice := "check that the interface is up and does multicast (ip -d link show)"
	switch {
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		advice = "raise net.ipv4.igmp_max_memberships (groups a socket may join) and net.core.optmem_max"
	case errors.Is(err, unix.ENODEV):
		advice = "the interface is gone or has no address of this IP version"
	}
	return fmt.Errorf("multicast: join %v on %s: %w; %s", group, p.Interface.Name, err, advice)
}

func udpLeave(p *mcastPlan, fd int, group netip.Addr) {
	// Leaving fails only if the interface is gone, and with it all memberships.
	if p.v6 {
		m := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(p.Interface.Index)}
		_ = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_LEAVE_GROUP, &m)
		return
	}
	m := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(p.Interface.Index)}
	_ = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_DROP_MEMBERSHIP, &m)
}

// udpSetBuffer sizes a receive buffer. With CAP_NET_ADMIN it may exceed rmem_max (forced). Otherwise the
// kernel clamps silently, so the size is read back.
func udpSetBuffer(fd, want int) (got int, forced bool, err error) {
	forced = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, want) == nil
	if !forced {
		if err := udpSetOptions(fd, udpOption{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, want}); err != nil {
			return 0, false, err
		}
	}
	if got, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
		err = fmt.Errorf("multicast: read SO_RCVBUF back: %w", err)
	}
	return got, forced, err
}

// udpMemInfo reads the bytes that the kernel has charged a socket's queue (SK_MEMINFO_RMEM_ALLOC), and
// the datagrams that it has dropped (SK_MEMINFO_DROPS).
func udpMemInfo(fd int) (queued, drops uint32, err error) {
	var info [unix.SK_MEMINFO_DROPS + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, 0, fmt.Errorf("multicast: read SO_MEMINFO: %w", errno)
	}
	return info[unix.SK_MEMINFO_RMEM_ALLOC], info[unix.SK_MEMINFO_DROPS], nil
}

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

// udpFilterNet is the offset of the IP header for a socket filter: SKF_NET_OFF of linux/filter.h.
const udpFilterNet = 0xfff00000

// udpFilter is a classic BPF program that drops the datagrams of this rank's own sending socket: ranks on
// one machine share the address and differ by port. It also drops datagrams that were not sent to a group,
// since the socket may be bound to all addresses. Attaching it needs no privileges. The packet of a UDP
// socket's filter begins with the UDP header.
func udpFilter(own netip.AddrPort) []unix.SockFilter {
	const (
		loadByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		loadHalf = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		loadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpEq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jumpGe   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret      = unix.BPF_RET | unix.BPF_K
	)
	source, dest := uint32(12), uint32(16) // offsets of the addresses in the IPv4 header
	first := uint32(0xe0)                  // smallest first byte of a group; broadcasts pass, too
	if own.Addr().Is6() {
		source, dest, first = 8, 24, 0xff
	}
	prog := []unix.SockFilter{
		{Code: loadByte, K: udpFilterNet + dest},
		{Code: jumpGe, K: first},
		{Code: loadHalf, K: 0}, // the UDP source port
		{Code: jumpEq, K: uint32(own.Port())},
	}
	for addr := own.Addr().AsSlice(); len(addr) > 0; addr = addr[4:] {
		prog = append(prog,
			unix.SockFilter{Code: loadWord, K: udpFilterNet + source},
			unix.SockFilter{Code: jumpEq, K: binary.BigEndian.Uint32(addr)})
		source += 4
	}
	prog = append(prog,
		unix.SockFilter{Code: ret, K: 0},
		unix.SockFilter{Code: ret, K: 0xffffffff}) // accept the whole packet
	for i := range prog {
		switch prog[i].Code {
		case jumpEq:
			prog[i].Jf = uint8(len(prog) - 1 - (i + 1)) // to the last instruction: accept
		case jumpGe:
			prog[i].Jf = uint8(len(prog) - 2 - (i + 1)) // to the last but one: drop
		}
	}
	return prog
}

func udpAttachFilter(fd int, own netip.AddrPort) error {
	prog := udpFilter(own)
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

// mcastOnlyJoined keeps groups that other sockets joined from a portable socket. It is best effort.
func mcastOnlyJoined(conn *net.UDPConn, v6 bool) {
	level, option := unix.IPPROTO_IP, unix.IP_MULTICAST_ALL
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), level, option, 0) })
	}
}
