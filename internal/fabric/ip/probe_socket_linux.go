package ip

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (t *udpProbe) send(size, total int) error {
	iov := unix.Iovec{Base: &t.out[0]}
	iov.SetLen(total)
	msg := unix.Msghdr{Name: t.name.pointer(), Namelen: t.name.size, Iov: &iov}
	msg.SetIovlen(1)
	if total > size {
		t.cut = newUDPSegment(size)
		msg.Control = (*byte)(unsafe.Pointer(&t.cut))
		msg.SetControllen(int(unsafe.Sizeof(t.cut)))
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(t.tx), uintptr(unsafe.Pointer(&msg)), 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("send to %v: %w%s", t.p.Groups[0].Addr(), errno, udpAdvice(errno))
		}
	}
}

func (t *udpProbe) await() error {
	fds := []unix.PollFd{{Fd: int32(t.rx), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, udpTestWait)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("poll: %w", err)
		case n == 0:
			return fmt.Errorf("datagrams to %v do not come back to this machine; check whether a firewall drops "+
				"them (nft list ruleset)", t.p.Groups[0].Addr())
		default:
			return nil
		}
	}
}

func (t *udpProbe) receive() (n, cut int, err error) {
	iov := unix.Iovec{Base: &t.in[0]}
	iov.SetLen(len(t.in))
	msg := unix.Msghdr{Iov: &iov, Control: (*byte)(unsafe.Pointer(&t.cuts))}
	msg.SetIovlen(1)
	msg.SetControllen(int(unsafe.Sizeof(t.cuts)))
	for {
		k, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(t.rx), uintptr(unsafe.Pointer(&msg)), 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, 0, fmt.Errorf("receive: %w", errno)
		}
		return int(k), t.cuts.segment(&msg), nil
	}
}
