package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/allcast/allcast/internal/inherit"
)

// A socket sends and receives trains: datagrams of equal size to or from the same address, of which the last one may
// be shorter.
type socket struct {
	conn   *net.UDPConn
	raw    syscall.RawConn
	local  netip.AddrPort
	v6     bool // addresses of IPv4 are then mapped
	buffer int  // bytes of the receive buffer, in the kernel's count
	gso    atomic.Bool
	gro    bool
	warn   func(error) // gets the error that turned off super-packets
}

// socketOptions are what a socket should be like.
type socketOptions struct {
	buffer int  // wanted bytes of the receive buffer
	send   int  // wanted bytes of the send buffer; 0: as the system likes
	shared bool // several sockets have the same port
	warn   func(error)
}

func openSocket(local netip.AddrPort, o socketOptions) (*socket, error) {
	s := &socket{warn: o.warn}
	if s.warn == nil {
		s.warn = func(error) {}
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if closed := c.Control(func(fd uintptr) { err = s.prepare(int(fd), o) }); closed != nil {
			return closed
		}
		return err
	}}
	network := "udp"
	if local.Addr().Is4() {
		network = "udp4"
	}
	c, err := lc.ListenPacket(context.Background(), network, listenText(local))
	if err != nil {
		return nil, fmt.Errorf("open the data socket: %w", err)
	}
	s.conn = c.(*net.UDPConn)
	inherit.Conn(s.conn)
	bound := s.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s.local = plain(bound)
	s.v6 = !local.Addr().Is4() && bound.Addr().Is6()
	if s.raw, err = s.conn.SyscallConn(); err != nil {
		_ = s.conn.Close() // the first error matters
		return nil, fmt.Errorf("open the data socket: %w", err)
	}
	s.measure(o.buffer)
	return s, nil
}

// listenText is an address for the standard library, which takes an empty host for all addresses.
func listenText(a netip.AddrPort) string {
	if !a.Addr().IsValid() {
		return fmt.Sprintf(":%d", a.Port())
	}
	return a.String()
}

// plain removes the mapping of IPv4, which depends on the source of the address.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// reaches reports whether the socket can send to an address of this version of IP.
func (s *socket) reaches(a netip.Addr) bool {
	here := s.local.Addr()
	return a.Is4() == here.Is4() || s.v6 && here.IsUnspecified()
}

func (s *socket) close() { _ = s.conn.Close() }

// errNoRoom means that the socket or the device has no room for a train for too long.
var errNoRoom = errors.New("no room in the send queue")

// noTrains is the warning when super-packets are turned off.
const noTrains = "the system refuses super-packets: each datagram now costs a system call"

// sendEach sends the datagrams of a train one by one. Without room, it drops the rest: the next one would have to wait
// as well.
func (s *socket) sendEach(train []byte, segment int, send func(datagram []byte) error) (sent int, first error) {
	for len(train) > 0 {
		n := min(segment, len(train))
		err := send(train[:n])
		train = train[n:]
		if err == nil {
			sent++
		} else if first == nil {
			first = err
		}
		if errors.Is(err, errNoRoom) || errors.Is(err, ErrClosed) {
			break
		}
	}
	return sent, first
}

// ended translates the error of a closed socket.
func ended(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return ErrClosed
	}
	return err
}

// each calls f for each datagram of a message with datagrams of segment bytes; 0: the message is one datagram.
func each(message []byte, segment int, f func(datagram []byte)) {
	if segment <= 0 {
		segment = max(1, len(message))
	}
	for len(message) > segment {
		f(message[:segment])
		message = message[segment:]
	}
	f(message)
}
