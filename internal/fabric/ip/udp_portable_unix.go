//go:build unix

package ip

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// mcastReadBuffer reads the size of a socket's buffer back.
func mcastReadBuffer(conn *net.UDPConn, asked int) int {
	raw, err := conn.SyscallConn()
	if err != nil {
		return asked
	}
	got := asked
	_ = raw.Control(func(fd uintptr) { // fails only when closed
		if n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF); err == nil {
			got = n
		}
	})
	return got
}

// mcastNoBuffers reports whether the queue of a device was full.
func mcastNoBuffers(err error) bool { return errors.Is(err, unix.ENOBUFS) }

// mcastReady makes a function that reports whether a socket has datagrams to read. The standard library
// has no such function that does not block.
func mcastReady(conn *net.UDPConn) func() bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	ready := false
	ask := func(fd uintptr) { ready = readable(fd) }
	return func() bool {
		ready = false
		_ = raw.Control(ask) // fails only when closed
		return ready
	}
}
