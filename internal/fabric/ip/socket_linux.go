package ip

import (
	"cmp"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/inherit"
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
	closed := c.Control(func(old uintptr) { fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err := cmp.Or(closed, err); err != nil {
		return nil, err
	}
	inherit.FD(fd)
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
func (s *rawSocket) Write(b []byte) (n int, err error) {
	closed := s.Control(func(fd uintptr) {
		n, err = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
	return max(0, n), cmp.Or(closed, err)
}

// send sends a message if there is room, and else returns EAGAIN. It does not tell the scheduler: see
// rawRecv and pollPark.
func (s *rawSocket) send(msg *unix.Msghdr) error {
	errno := unix.EINTR
	for reports := 0; errno == unix.EINTR; {
		if err := s.Control(func(fd uintptr) {
			_, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(msg)), unix.MSG_DONTWAIT)
			if reports < MaxReports && Reported(errno) {
				DropReports(fd)
				reports++
				errno = unix.EINTR
			}
		}); err != nil {
			return err
		}
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// A socket with IP_RECVERR learns of datagrams that the queue of this machine's own interface drops (ENOBUFS). It also
// gets ICMP errors, as the error of any later call: about an earlier datagram, to any destination.

// MaxReports is how often a call is repeated because of such a report. An error that remains is of the call itself.
const MaxReports = 4

// Reported reports whether an error may be about an earlier datagram.
func Reported(errno syscall.Errno) bool {
	switch errno {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ECONNREFUSED, unix.EMSGSIZE, unix.EHOSTDOWN, unix.ENONET,
		unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPROTO, unix.EACCES:
		return true
	}
	return false
}

// DropReports empties the queue of reports. While there are some, poll(2) reports an error.
func DropReports(fd uintptr) {
	var msg unix.Msghdr
	for range 64 { // the queue is small
		_, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&msg)),
			unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if errno != 0 && errno != unix.EINTR {
			return
		}
	}
}

// awaitRoom blocks until the socket is writable, for at most d. If the socket is closed, send says so.
func (s *rawSocket) awaitRoom(d time.Duration) {
	_ = s.Control(func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		_, _ = unix.Poll(fds[:], int(d.Milliseconds())) // the caller tries again in any case
	})
}

// CloseWrite ends the outgoing direction.
func (s *rawSocket) CloseWrite() error { return s.shutdown(unix.SHUT_WR) }

func (s *rawSocket) shutdown(how int) (err error) {
	closed := s.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), how) })
	return cmp.Or(closed, err)
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
