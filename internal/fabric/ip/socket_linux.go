package ip

import (
	"io"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawSocket is a socket outside of Go's poller, which would wake up for each of its events. Calls on it
// never block.
type rawSocket struct {
	mu  sync.RWMutex
	fd  int  // -1: closed
	dry bool // Read has drained the socket; the reader resets it when there is more
}

// controller has a descriptor: a syscall.RawConn or a rawSocket.
type controller interface {
	Control(f func(fd uintptr)) error
}

// newRawSocket makes a second descriptor of a socket. The caller closes the first one.
func newRawSocket(c controller) (*rawSocket, error) {
	fd := -1
	var err error
	if cerr := c.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd) // the first error matters
		return nil, err
	}
	return &rawSocket{fd: fd}, nil
}

// Control calls f with the descriptor, as syscall.RawConn does.
func (s *rawSocket) Control(f func(fd uintptr)) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd < 0 {
		return net.ErrClosed
	}
	f(uintptr(s.fd))
	return nil
}

// Read returns errAgain if nothing is there.
func (s *rawSocket) Read(b []byte) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	if s.dry {
		return 0, errAgain
	}
	for {
		n, errno := rawRecv(s.fd, b)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return 0, errAgain
		case errno != 0:
			return 0, errno
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		default:
			s.dry = n < len(b) // saves another call
			return n, nil
		}
	}
}

// Write writes what fits.
func (s *rawSocket) Write(b []byte) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err := unix.SendmsgN(s.fd, b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return max(0, n), err
}

// send sends a message if there is room, and else returns EAGAIN.
func (s *rawSocket) send(msg *unix.Msghdr) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd < 0 {
		return net.ErrClosed
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(msg)), unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// awaitRoom blocks until the socket is writable, for at most d.
func (s *rawSocket) awaitRoom(d time.Duration) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.fd >= 0 {
		fds := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds[:], int(d.Milliseconds())) // the caller tries again in any case
	}
}

// CloseWrite ends the outgoing direction.
func (s *rawSocket) CloseWrite() error {
	return s.shutdown(unix.SHUT_WR)
}

func (s *rawSocket) shutdown(how int) (err error) {
	if cerr := s.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), how) }); cerr != nil {
		return cerr
	}
	return err
}

// Close ends both directions. The descriptor stays until free, since a poller may be watching it.
func (s *rawSocket) Close() error { return s.shutdown(unix.SHUT_RDWR) }

// free closes the descriptor.
func (s *rawSocket) free() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

// rawRecv receives without blocking. It does not tell the scheduler, which would cost as much as the
// call.
func rawRecv(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
