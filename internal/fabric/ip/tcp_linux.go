package ip

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tcpUserTimeout makes the kernel give up a connection after d without acknowledgements, or with a
// closed window (tcp(7), RFC 5482).
func tcpUserTimeout(c *net.TCPConn, d time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return set
}
