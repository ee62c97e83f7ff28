//go:build unix

package ip

import "net"

// waiting reports whether a connection waits to be accepted.
func waiting(l *net.TCPListener) (yes bool) {
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { yes = readable(fd) }) // fails only when closed
	return yes
}
