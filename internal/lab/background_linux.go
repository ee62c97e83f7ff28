package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/background"
)

const (
	// A source blocks while this much of its data waits in its leaf, as a sender with a window does. Otherwise an
	// overloaded link would drop most packets of all jobs.
	backgroundWindow = 512 << 10
	// A source sends at most this much at once, so that the queues of its leaf see an even rate.
	backgroundGrain = 2 * time.Millisecond
	// A source that a busy machine served late catches up with at most this much. Then its bursts are not longer than
	// planned.
	backgroundDelay = 20 * time.Millisecond
	// The kernel cuts a super-packet into at most 64 datagrams (UDP_MAX_SEGMENTS of older kernels).
	maxSegments = 64
	ipHeaders   = 20 + 8 // IPv4 and UDP
)

// startBackground starts the flows of other jobs. They end with this process.
func (p *Plan) startBackground() error {
	if len(p.Background) == 0 {
		return nil
	}
	sent, err := newByteCount(backgroundPath(p.Config.Name))
	if err != nil {
		return err
	}
	for _, leaf := range p.backgroundSinks() {
		err := inNamespace(p.Namespace(leaf), func() error { return openSink(p.backgroundAddr(leaf)) })
		if err != nil {
			return fmt.Errorf("the sink of background traffic in %s: %w", leaf.Name, err)
		}
	}
	for _, f := range p.Background {
		s := &source{bursts: f.Bursts, rate: float64(p.Config.Rate), sent: sent}
		err := inNamespace(p.Namespace(f.From), func() error { return s.open(p.backgroundAddr(f.To), p.Config.MTU) })
		if err != nil {
			return fmt.Errorf("the source of background traffic in %s: %w", f.From.Name, err)
		}
		go s.run()
	}
	return nil
}

// openSink opens the socket to which flows send, in the namespace of the calling thread. Nobody reads it, so the
// kernel drops what arrives. Without a socket, the leaf would answer with ICMP messages.
func openSink(addr netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// The descriptor stays open with this process.
	return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4(), Port: backgroundPort}))
}

// source sends the bursts of a flow.
type source struct {
	bursts *background.Flow
	rate   float64 // within a burst, in bit/s
	conn   *net.UDPConn
	data   []byte // of one super-packet
	sent   *byteCount
}

// open opens the socket of a source in the namespace of the calling thread.
func (s *source) open(to netip.Addr, mtu int) error {
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, backgroundPort)))
	if err != nil {
		return err
	}
	s.conn = conn
	segment := mtu - ipHeaders
	segments := min(65535-ipHeaders, int(s.rate/8*backgroundGrain.Seconds())) / segment
	s.data = make([]byte, segment*min(max(1, segments), maxSegments))
	return s.set(func(fd int) error {
		return errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, backgroundWindow),
			unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment))
	})
}

func (s *source) set(f func(fd int) error) error {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = f(int(fd)) })
	return errors.Join(err, set)
}

// run sends bursts until the process ends.
func (s *source) run() {
	for next := time.Now(); ; {
		pause, bytes := s.bursts.Next(s.rate)
		for next = next.Add(pause); bytes > 0; {
			time.Sleep(time.Until(next))
			if late := time.Now().Add(-backgroundDelay); next.Before(late) {
				next = late
			}
			n, err := s.conn.Write(s.data[:min(bytes, int64(len(s.data)))])
			switch {
			case err == nil:
				s.sent.add(n)
			case errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EBADF):
				return
			default:
				n = len(s.data) // a cable is cut: this part of the burst is lost
			}
			bytes -= int64(n)
			next = next.Add(time.Duration(float64(n) * 8 / s.rate * float64(time.Second)))
		}
	}
}

// byteCount is a count that other processes can read from a file.
type byteCount struct {
	mu   sync.Mutex
	n    uint64
	file *os.File
}

// newByteCount starts at 0. The file never has fewer bytes than a count.
func newByteCount(path string) (*byteCount, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	c := &byteCount{file: f}
	return c, c.write()
}

func (c *byteCount) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += uint64(n)
	_ = c.write() // best effort: a full disk must not end a job
}

func (c *byteCount) write() error {
	_, err := c.file.WriteAt(binary.LittleEndian.AppendUint64(nil, c.n), 0)
	return err
}

// readBackground returns the number of bytes that the background flows of a lab have sent so far.
func readBackground(name string) (uint64, error) {
	text, err := os.ReadFile(backgroundPath(name))
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(text) == 0:
		return 0, nil // the holder has not started them yet
	case err != nil:
		return 0, err
	case len(text) != 8:
		return 0, fmt.Errorf("%s has %d bytes, want 8: it counts the bytes of background traffic",
			backgroundPath(name), len(text))
	}
	return binary.LittleEndian.Uint64(text), nil
}
