package ip

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// readable reports whether a read would not block. It does not tell the scheduler, which would wake Go's monitor
// thread.
func readable(fd uintptr) bool {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), uintptr(len(fds)),
		uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n > 0
}
