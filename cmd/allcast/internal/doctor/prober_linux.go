package doctor

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

func control(conn *net.UDPConn, f func(fd int)) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// dontFragment makes datagrams that are too large for a link disappear instead of arriving in fragments.
func dontFragment(conn *net.UDPConn) {
	control(conn, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	})
}

// enlarge asks for a large receive buffer, above the limit of unprivileged users if possible.
func enlarge(conn *net.UDPConn, size int) {
	control(conn, func(fd int) {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		}
	})
}

// drops returns how many datagrams the multicast socket has dropped because its buffer was full.
func (p *prober) drops() (n int) {
	control(p.member, func(fd int) {
		var info [unix.SK_MEMINFO_DROPS + 1]uint32
		size := uint32(unsafe.Sizeof(info))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		if errno == 0 {
			n = int(info[unix.SK_MEMINFO_DROPS])
		}
	})
	return n
}
