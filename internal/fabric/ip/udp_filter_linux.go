package ip

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// udpFilterNet is the offset of the IP header for a socket filter: SKF_NET_OFF of linux/filter.h.
const udpFilterNet = 0xfff00000

// udpFilter is a classic BPF program that drops the datagrams of this rank's own sending socket, and no
// others: ranks on one machine share the address and differ by port. Attaching it needs no privileges.
// The packet of a UDP socket's filter begins with the UDP header.
func udpFilter(own netip.AddrPort) []unix.SockFilter {
	const (
		loadHalf = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		loadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpEq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		ret      = unix.BPF_RET | unix.BPF_K
	)
	source := uint32(12) // offset of the source address in the IPv4 header
	if own.Addr().Is6() {
		source = 8
	}
	prog := []unix.SockFilter{
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
		if prog[i].Code == jumpEq {
			prog[i].Jf = uint8(len(prog) - 1 - (i + 1)) // to the last instruction
		}
	}
	return prog
}

func udpAttachFilter(fd int, own netip.AddrPort) error {
	prog := udpFilter(own)
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}
