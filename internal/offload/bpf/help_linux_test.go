package bpf

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/place"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/wire"
)

// Communicator, slot and PSN mask of the operations in these tests.
const (
	testComm = 7
	testSlot = 5 << 20
	testMask = 1<<20 - 1
)

func loopback(t testing.TB) *net.Interface {
	t.Helper()
	ifi, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skipf("no loopback interface: %v", err)
	}
	return ifi
}

// load returns an Offload. It skips the test if the kernel denies permission.
func load(t testing.TB, cfg Config) *Offload {
	t.Helper()
	cfg.Interface = loopback(t)
	if cfg.Hook == "" {
		cfg.Hook = SockFilter
	}
	o, err := New(cfg)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && os.Geteuid() != 0 {
		t.Skipf("no permission to load eBPF programs: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

// loopbackSockets is an Offload with sockets on loopback: one filtered socket per subgroup, and one
// for sending.
type loopbackSockets struct {
	*Offload
	tx       int
	from     netip.AddrPort
	groups   []netip.AddrPort
	rx       []int
	dropped  []*atomic.Uint64
	sent     []uint64 // messages sent, per subgroup
	received []uint64 // messages that reached the socket, per subgroup
}

// own is the address that the filters take for that of this process.
var own = netip.MustParseAddrPort("127.0.0.1:9")

func newLoopback(t testing.TB, cfg Config, subgroups int, gro bool) *loopbackSockets {
	t.Helper()
	w := &loopbackSockets{Offload: load(t, cfg)}
	w.Share() // all packets then pass the socket filters, which count them
	w.tx = udpSocket(t, netip.MustParseAddrPort("127.0.0.1:0"))
	sa, err := unix.Getsockname(w.tx)
	must(t, err)
	w.from = netip.AddrPortFrom(own.Addr(), uint16(sa.(*unix.SockaddrInet4).Port))
	must(t, unix.SetsockoptIPMreqn(w.tx, unix.IPPROTO_IP, unix.IP_MULTICAST_IF,
		&unix.IPMreqn{Ifindex: int32(w.cfg.Interface.Index)}))
	must(t, unix.SetsockoptInt(w.tx, unix.IPPROTO_IP, unix.IP_MULTICAST_TTL, 1))
	w.groups = ip.GroupsFor(uint64(os.Getpid())<<32|tokens.Add(1), subgroups, false) // other processes have others
	for _, g := range w.groups {
		fd := udpSocket(t, g)
		m := &unix.IPMreqn{Multiaddr: g.Addr().As4(), Ifindex: int32(w.cfg.Interface.Index)}
		must(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, m))
		if gro {
			must(t, unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1))
		}
		n, err := w.Filter(fd, g, own)
		must(t, err)
		w.rx, w.dropped = append(w.rx, fd), append(w.dropped, n)
	}
	w.sent, w.received = make([]uint64, subgroups), make([]uint64, subgroups)
	return w
}

func udpSocket(t testing.TB, at netip.AddrPort) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	must(t, unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}))
	return fd
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// datagram returns the bytes of a datagram as a rank sends it.
func datagram(h wire.Header, payload []byte) []byte {
	b := make([]byte, wire.HeaderSize+len(payload))
	h.Put(b)
	copy(b[wire.HeaderSize:], payload)
	return b
}

func header(token uint64, psn uint32) wire.Header {
	return wire.Header{Token: token, Comm: testComm, Imm: testSlot | psn}
}

// send sends datagrams and waits until each was placed, dropped or delivered to the socket.
func (w *loopbackSockets) send(t testing.TB, sub int, datagrams ...[]byte) {
	t.Helper()
	for _, d := range datagrams {
		w.transmit(t, sub, d, nil)
	}
	w.settle(t)
}

// transmit sends one message with a control message, and does not wait for its arrival.
func (w *loopbackSockets) transmit(t testing.TB, sub int, b, control []byte) {
	t.Helper()
	to := &unix.SockaddrInet4{Port: int(w.groups[sub].Port()), Addr: w.groups[sub].Addr().As4()}
	until(t, "space in the send buffer", func() bool {
		err := unix.Sendmsg(w.tx, b, control, to, 0)
		if err != nil && err != unix.EAGAIN && err != unix.ENOBUFS {
			t.Fatal(err)
		}
		return err == nil
	})
	w.sent[sub]++
}

// settle waits until no packet is in flight.
func (w *loopbackSockets) settle(t testing.TB) {
	t.Helper()
	for sub, fd := range w.rx {
		until(t, "all packets to arrive", func() bool {
			w.drain(t, sub, fd)
			return w.received[sub]+w.dropped[sub].Load() >= w.sent[sub]
		})
	}
}

func (w *loopbackSockets) drain(t testing.TB, sub, fd int) {
	t.Helper()
	for {
		_, err := unix.Read(fd, make([]byte, 1<<16))
		if err == unix.EAGAIN {
			return
		}
		must(t, err)
		w.received[sub]++
	}
}

// until polls a condition that becomes true soon, but without a notification.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	if !testenv.Soon(f) {
		t.Fatalf("timed out waiting for %s", what)
	}
}

var tokens, draws atomic.Uint64

func newToken() uint64 { return tokens.Add(1)*0x9e3779b97f4a7c15 | 1<<63 }

// uniform returns the spec of a placement with blocks of equal length.
func uniform(sub, chunk, blocks, length int) *fabric.PlacementSpec {
	lengths := make([]int, blocks)
	for i := range lengths {
		lengths[i] = length
	}
	return specOf(sub, chunk, lengths...)
}

// specOf returns the spec of a placement with one block per length, back to back.
func specOf(sub, chunk int, lengths ...int) *fabric.PlacementSpec {
	l := &fabric.PlacementSpec{Stream: sub, Token: newToken(), Comm: testComm, Imm: testSlot, Mask: testMask, Chunk: chunk}
	off := int64(0)
	for _, n := range lengths {
		if k := uint32((n + chunk - 1) / chunk); k > 0 {
			l.Blocks = append(l.Blocks, fabric.Block{Off: off, Run: fabric.Run{PSN: l.PSNs, N: k}, Tail: n - int(k-1)*chunk})
			l.PSNs += k
		}
		off += int64(n)
	}
	return l
}

// chunksOf returns the datagrams that carry all chunks of a placement.
func chunksOf(l *fabric.PlacementSpec, data []byte) (list [][]byte) {
	for _, b := range l.Blocks {
		for i := range b.Run.N {
			at, n := b.Off+int64(i)*int64(l.Chunk), l.Chunk
			if i == b.Run.N-1 {
				n = b.Tail
			}
			list = append(list, datagram(header(l.Token, b.Run.PSN+i), data[at:at+int64(n)]))
		}
	}
	return list
}

// follower is an open placement with the state that a receive worker keeps for it.
type follower struct {
	*placed
	*place.Map
	seen uint64
}

func follow(p fabric.OpenPlacement, l *fabric.PlacementSpec) *follower {
	return &follower{p.(*placed), place.Shared(p.Words(), l.PSNs), 0}
}

// unseen reports whether the kernel has placed chunks since the last scan.
func (f *follower) unseen() bool { return f.Counted() != f.seen }

// scan returns the chunks that the kernel has placed since the last scan.
func (f *follower) scan() (runs []fabric.Run) {
	f.seen = f.Counted()
	f.Fresh(func(psn, n uint32) {
		if k := len(runs) - 1; k >= 0 && runs[k].PSN+runs[k].N == psn {
			runs[k].N += n
		} else {
			runs = append(runs, fabric.Run{PSN: psn, N: n})
		}
	})
	return runs
}

// claim claims chunks for a read.
func (f *follower) claim(psn, n uint32) {
	for f.Claim(psn, n, func(_, won uint32) { f.Count(won) }) {
		runtime.Gosched()
	}
}

// take claims a chunk and marks it as placed by the process.
func (f *follower) take(psn uint32) bool {
	if !f.Take(psn) {
		return false
	}
	f.Finish(psn, 1)
	f.Count(1)
	return true
}

func (w *loopbackSockets) open(t testing.TB, buf []byte, l *fabric.PlacementSpec) (fabric.Area, *follower) {
	t.Helper()
	a := w.Area(buf)
	if a == nil {
		t.Fatal("Area returned nil")
	}
	p := a.Open(l)
	if p == nil {
		t.Fatal("Open refused the placement")
	}
	return a, follow(p, l)
}

func (w *loopbackSockets) alloc(t testing.TB, n int) []byte {
	t.Helper()
	b, err := w.Alloc(n)
	must(t, err)
	t.Cleanup(func() { _ = w.Free(b) })
	return b
}

// randomBytes returns other bytes in each call, and the same in each run.
func randomBytes(n int) []byte {
	r := rand.New(rand.NewPCG(draws.Add(1), uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// ignored checks the counters of a placement since the last call.
func ignored(t testing.TB, p fabric.OpenPlacement, duplicates, late, foreign uint64) {
	t.Helper()
	if d, l, f := p.Ignored(); d != duplicates || l != late || f != foreign {
		t.Errorf("%d duplicates, %d late, %d foreign, want %d, %d, %d", d, l, f, duplicates, late, foreign)
	}
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Fatalf("the bytes differ from offset %d on; lengths %d and %d", i, len(got), len(want))
	}
}

func runs(t testing.TB, p *follower, want ...fabric.Run) {
	t.Helper()
	got := p.scan()
	if len(got) != len(want) {
		t.Fatalf("chunks placed: %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("chunks placed: %v, want %v", got, want)
		}
	}
}
