package aggregate

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/inc"
)

// A train that the kernel does not cut is sent as single datagrams. The next train may be cut.
func TestRefusedTrain(t *testing.T) {
	warned := 0
	s, err := openSocket(netip.AddrPortFrom(home, 0), socketOptions{buffer: 1 << 20, warn: func(error) { warned++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if !s.gso.Load() {
		t.Skip("this kernel has no super-packets")
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: home.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const n = 200 // more than the kernel cuts
	sent, err := s.send(newOutbox(time.Second), c.LocalAddr().(*net.UDPAddr).AddrPort(), make([]byte, n), 1)
	if sent != n || err != nil || !s.gso.Load() || warned != 0 {
		t.Errorf("%d sent, %v; super-packets: %t; %d warnings", sent, err, s.gso.Load(), warned)
	}
}

// Only a device that cannot cut trains at all turns them off for all destinations, with one warning.
func TestTrainErrors(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		sent  int
		off   bool
	}{
		{unix.EINVAL, 6, false},
		{unix.EMSGSIZE, 6, false},
		{unix.EIO, 6, true},
		{unix.EOPNOTSUPP, 6, true},
		{unix.EPERM, 0, false},
		{unix.ENOBUFS, 0, false},
	} {
		warned := 0
		s, err := openSocket(netip.AddrPortFrom(home, 0), socketOptions{buffer: 1 << 20, warn: func(error) { warned++ }})
		if err != nil {
			t.Fatal(err)
		}
		s.gso.Store(true)
		o := newOutbox(0)
		o.attempt = func(uintptr) {
			o.errno = 0
			if o.msg.Control != nil {
				o.errno = c.errno
			}
		}
		sent := 0
		for range 2 {
			n, _ := s.send(o, netip.AddrPortFrom(home, 9), make([]byte, 30), 10)
			sent += n
		}
		if sent != c.sent || s.gso.Load() == c.off || (warned == 1) != c.off {
			t.Errorf("%v: %d sent; super-packets: %t; %d warnings", c.errno, sent, s.gso.Load(), warned)
		}
		s.close()
	}
}

// failingConn fails to read for a while.
type failingConn struct {
	syscall.RawConn
	failures int
}

func (c *failingConn) Read(f func(uintptr) bool) error {
	if c.failures--; c.failures >= 0 {
		return unix.ENOMEM
	}
	return c.RawConn.Read(f)
}

// A rank receives again after an error that does not last.
func TestReceiveAgain(t *testing.T) {
	s := listen(t, Config{})
	p, _ := openPort(t, portConfig(oneLevel(t, s, 2), 0))
	p.sock.raw = &failingConn{p.sock.raw, 3}
	got := make(chan uint32, 1)
	ended := make(chan error)
	go func() { ended <- p.Receive(func(h *inc.Header, _ []byte) { got <- h.Place }, func() {}) }()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var b [inc.HeaderSize + 4]byte
	(&inc.Header{Kind: inc.Result, Session: 7, Place: 3}).Put(b[:])
	if _, err := c.Write(b[:]); err != nil {
		t.Fatal(err)
	}
	select {
	case place := <-got:
		if place != 3 {
			t.Errorf("place %d", place)
		}
	case err := <-ended:
		t.Fatal(err)
	}
	_ = p.Close()
	if err := <-ended; err != ErrClosed {
		t.Error(err)
	}
}

// All sends of a batch share one patience, and the next batch has its own.
func TestPatiencePerBatch(t *testing.T) {
	s, err := openSocket(netip.AddrPortFrom(home, 0), socketOptions{buffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for _, full := range []syscall.Errno{unix.EAGAIN, unix.ENOBUFS} {
		o := newOutbox(time.Millisecond)
		o.attempt = func(uintptr) { o.errno = full }
		send := func() error {
			err := s.transmit(o, []byte("x"), 0)
			if errors.Is(err, errNoRoom) && time.Now().Before(o.end) {
				t.Errorf("%v: gave up before %v", full, o.end)
			}
			return err
		}
		err := send()
		end := o.end
		if !errors.Is(err, errNoRoom) || end.IsZero() {
			t.Fatalf("%v: %v, %v", full, err, end)
		}
		if err := send(); !errors.Is(err, errNoRoom) || o.end != end {
			t.Errorf("%v: %v; the batch ended at %v, and now at %v", full, err, end, o.end)
		}
		o.begin()
		if err := send(); !errors.Is(err, errNoRoom) || !o.end.After(end) {
			t.Errorf("%v: %v; the next batch ended at %v, not after %v", full, err, o.end, end)
		}
		o.begin()
		o.attempt = func(uintptr) { o.errno = 0 }
		if err := send(); err != nil {
			t.Errorf("%v: with room: %v", full, err)
		}
	}
}

// A socket learns of what the queue of its interface drops, and datagrams to a program that is gone fail nothing.
func TestSocketReports(t *testing.T) {
	s, err := openSocket(netip.AddrPortFrom(home, 0), socketOptions{buffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.raw.Control(func(fd uintptr) {
		if v, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR); err != nil || v != 1 {
			t.Errorf("IP_RECVERR is %d, %v", v, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	gone, err := net.ListenUDP("udp", &net.UDPAddr{IP: home.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	to := gone.LocalAddr().(*net.UDPAddr).AddrPort()
	_ = gone.Close()
	o := newOutbox(30 * time.Second)
	for i := range 100 {
		if sent, err := s.send(o, to, []byte("x"), 1); err != nil || sent != 1 {
			t.Fatalf("datagram %d: %d, %v", i, sent, err)
		}
	}
	self := s.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	if _, err := s.send(o, self, []byte("y"), 1); err != nil {
		t.Fatal(err)
	}
	in := newInbox()
	if n, err := s.receive(in); err != nil || n != 1 {
		t.Fatalf("%d messages, %v", n, err)
	}
	if b, _ := in.message(0); string(b) != "y" {
		t.Errorf("received %q", b)
	}
}
