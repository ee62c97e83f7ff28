package ip

import "golang.org/x/sys/unix"

// Pending implements fabric.Receiver.
func (r *udpReceiver) Pending() (yes bool) {
	_ = r.socket.Control(func(fd uintptr) { // fails only when closed
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		yes = err == nil && n > 0
	})
	return yes
}
