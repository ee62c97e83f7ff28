//go:build unix && !linux

package ip

import "golang.org/x/sys/unix"

// readable reports whether a read would not block.
func readable(fd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}
