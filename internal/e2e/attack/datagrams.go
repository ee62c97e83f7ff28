// Package attack attacks a job as processes without its key can. It listens to the multicast group of the
// job, sends datagrams to the group, and connects to the listeners of the job.
package attack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/net/ipv4"
)

// HeaderSize is the length of a datagram's header: token u64, communicator u32, immediate u32.
const HeaderSize = 16

// FreeGroup returns a multicast group that no other process is likely to use.
func FreeGroup(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	port := c.LocalAddr().(*net.UDPAddr).Port
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{239, 255, byte(port >> 8), byte(port)}), uint16(port))
}

func loopback(t *testing.T) *net.Interface {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Flags&net.FlagLoopback != 0 {
			return &all[i]
		}
	}
	t.Skip("no loopback interface")
	return nil
}

// An Eavesdropper joins a group and keeps the datagrams that it has heard last.
type Eavesdropper struct {
	*net.UDPConn
	heard  [256]atomic.Pointer[[]byte]
	latest atomic.Pointer[[]byte]
}

// NewEavesdropper joins a group.
func NewEavesdropper(t *testing.T, group netip.AddrPort) *Eavesdropper {
	t.Helper()
	c, err := net.ListenMulticastUDP("udp4", loopback(t), net.UDPAddrFromAddrPort(group))
	if err != nil {
		t.Fatal(err)
	}
	return &Eavesdropper{UDPConn: c}
}

// Hear reads datagrams and passes them to f, until the Eavesdropper is closed. It leaves out those of
// the sender except, and those without a complete header. f may change the datagram but not keep it.
func (e *Eavesdropper) Hear(except netip.AddrPort, f func(datagram []byte)) {
	b := make([]byte, 1<<16)
	for {
		k, from, err := e.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != except && k >= HeaderSize {
			f(b[:k])
		}
	}
}

// Run keeps the datagrams of all senders but f. If it kept those of f too, f could forge a chunk with
// a valid token, one bit at a time.
func (e *Eavesdropper) Run(f *Forger) {
	i := 0
	e.Hear(f.Addr(), func(datagram []byte) {
		d := bytes.Clone(datagram)
		e.heard[i%len(e.heard)].Store(&d)
		e.latest.Store(&d)
		i++
	})
}

// A Forger sends datagrams to a group.
type Forger struct {
	conn  *net.UDPConn
	group netip.AddrPort
	hear  *Eavesdropper
	rnd   *rand.Rand
	n     int
}

// NewForger makes a Forger that starts from the datagrams that hear has kept.
func NewForger(t *testing.T, group netip.AddrPort, hear *Eavesdropper) *Forger {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		p := ipv4.NewPacketConn(c)
		err = errors.Join(p.SetMulticastInterface(loopback(t)), p.SetMulticastLoopback(true))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Forger{conn: c, group: group, hear: hear, rnd: rand.New(rand.NewPCG(2, 2))}
}

// Addr returns the address that the Forger sends from.
func (f *Forger) Addr() netip.AddrPort { return f.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Close closes the socket.
func (f *Forger) Close() error { return f.conn.Close() }

// Send sends a datagram to the group. It reports false if the datagram is too long for the interface.
func (f *Forger) Send(datagram []byte) bool {
	_, err := f.conn.WriteToUDPAddrPort(datagram, f.group)
	return err == nil
}

// SendNext makes up a datagram and sends it. If the datagram begins with a token that was overheard,
// the rest is unchanged, or too short for a chunk. A process that hears tokens can forge chunks
// (SECURITY.md), so such a forgery would prove nothing.
func (f *Forger) SendNext() bool {
	var d []byte
	if p := f.hear.heard[f.rnd.IntN(len(f.hear.heard))].Load(); p != nil {
		d = bytes.Clone(*p)
	}
	f.n++
	switch kind := f.n % 6; {
	case len(d) <= HeaderSize || kind == 0: // noise of any length
		d = make([]byte, f.rnd.IntN(1500))
		for i := range d {
			d[i] = byte(f.rnd.Uint32())
		}
	case kind == 1: // a replay
	case kind == 2: // truncated, in the header or after it
		d = d[:f.rnd.IntN(len(d))]
	case kind == 3: // a chunk of the current operation or the next one, except for its token
		const psnBits = 24
		le := binary.LittleEndian
		slot := le.Uint32((*f.hear.latest.Load())[12:])>>psnBits + f.rnd.Uint32N(2)
		le.PutUint64(d, f.rnd.Uint64())
		le.PutUint32(d[12:], slot<<psnBits|le.Uint32(d[12:])&(1<<psnBits-1))
		for i := HeaderSize; i < len(d); i++ {
			d[i] = 0xee
		}
	case kind == 4: // one bit of the token is wrong
		d[f.rnd.IntN(8)] ^= 1 << f.rnd.IntN(8)
		d[len(d)-1] ^= 0xff
	case kind == 5: // longer than any chunk of this operation
		d = slices.Concat(d, []byte{0xee})
	}
	return f.Send(d)
}
