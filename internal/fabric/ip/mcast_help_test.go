package ip

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// mcastSeed keeps the groups of tests apart, even of test binaries that run at the same time.
var mcastSeed atomic.Uint64

func mcastNextGroups(n int, v6 bool) []netip.AddrPort {
	return GroupsFor(uint64(os.Getpid())<<32|mcastSeed.Add(1), n, v6)
}

// mcastNamespaceVar names the namespace that the tests run in: see TestInNamespace.
const mcastNamespaceVar = "ALLCAST_TEST_NAMESPACE"

// mcastLoopback is a configuration for the loopback interface: nothing leaves the machine.
func mcastLoopback(t testing.TB, n int, v6 bool) McastConfig {
	t.Helper()
	ifcs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, ifc := range ifcs {
		if os.Getenv(mcastNamespaceVar) == "veth" {
			if ifc.Name == "allcast0" {
				return mcastOn(&ifc, n, v6, "192.0.2.1", "2001:db8::1")
			}
		} else if ifc.Flags&net.FlagLoopback != 0 && ifc.Flags&net.FlagUp != 0 {
			return mcastOn(&ifc, n, v6, "127.0.0.1", "::1")
		}
	}
	t.Skip("no loopback interface is up")
	return McastConfig{}
}

func mcastOn(ifc *net.Interface, n int, v6 bool, addr4, addr6 string) McastConfig {
	addr := addr4
	if v6 {
		addr = addr6
	}
	cfg := McastConfig{Interface: ifc, Local: netip.MustParseAddr(addr), Groups: mcastNextGroups(n, v6)}
	seed := uint64(os.Getpid())<<32 | mcastSeed.Load()
	cfg.CommGroup = func(id uint32, sub int) netip.Addr { return CommGroup(seed, id, sub, n, v6) }
	return cfg
}

// mcastVariant is one way to open multicast.
type mcastVariant struct {
	name     string
	v6       bool
	plain    bool
	portable bool
	sums     bool
}

var mcastVariants = []mcastVariant{
	{name: "v4"},
	{name: "v4-plain", plain: true},
	{name: "v4-portable", portable: true},
	{name: "v6", v6: true},
	{name: "v6-plain", v6: true, plain: true},
	{name: "v6-portable", v6: true, portable: true},
	{name: "v4-sums", sums: true},
	{name: "v4-plain-sums", plain: true, sums: true},
	{name: "v4-portable-sums", portable: true, sums: true},
	{name: "v6-sums", v6: true, sums: true},
}

func (v mcastVariant) try(cfg McastConfig) (*Multicast, error) {
	if !v.portable {
		return OpenMulticast(cfg)
	}
	p, err := newMcastPlan(cfg)
	if err != nil {
		return nil, err
	}
	return openPortable(p)
}

func (v mcastVariant) open(t testing.TB, cfg McastConfig) *Multicast {
	t.Helper()
	cfg.PlainSockets, cfg.Sums = v.plain, v.sums
	m, err := v.try(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// mcastEach runs a test for all variants that work here.
func mcastEach(t *testing.T, f func(t *testing.T, v mcastVariant)) {
	t.Helper()
	for _, v := range mcastVariants {
		t.Run(v.name, func(t *testing.T) {
			if v.v6 {
				mcastNeedV6(t)
			}
			f(t, v)
		})
	}
}

func mcastNeedV6(t *testing.T) {
	t.Helper()
	m, err := OpenMulticast(mcastLoopback(t, 1, true))
	if err != nil {
		t.Log(err)
		t.Skip("no IPv6 multicast here; as root, TestInNamespace makes its own")
	}
	_ = m.Close()
}

// mcastPair opens multicast for two ranks of one machine.
func mcastPair(t testing.TB, v mcastVariant) (a, b *Multicast) {
	t.Helper()
	cfg := mcastLoopback(t, 2, v.v6)
	return v.open(t, cfg), v.open(t, cfg)
}

// mcastSink keeps the datagrams that it receives. It expects the datagrams of guess, in this order, at
// their places in buf.
type mcastSink struct {
	chunk   int
	buf     []byte
	guess   []uint32
	got     map[uint32]int
	foreign int
	direct  int // chunks that arrived in place
	copied  int
	idle    int
}

func newMcastSink(chunk, chunks int) *mcastSink {
	return &mcastSink{chunk: chunk, buf: make([]byte, chunk*chunks), got: make(map[uint32]int)}
}

const mcastToken = 0x1122334455667788

func (s *mcastSink) slot(psn uint32) []byte {
	return s.buf[int(psn)*s.chunk:][:s.chunk]
}

func (s *mcastSink) Expect(slots [][]byte) int {
	n := min(len(slots), len(s.guess))
	for i := range n {
		slots[i] = s.slot(s.guess[i])
	}
	return n
}

func (s *mcastSink) Arrived(hs []wire.Header) int {
	n := 0
	for n < len(hs) && hs[n].Token == mcastToken && hs[n].Imm == s.guess[n] {
		s.got[hs[n].Imm]++
		n++
	}
	s.guess = s.guess[n:]
	s.direct += n
	return n
}

func (s *mcastSink) Chunk(h wire.Header, payload []byte) {
	if h.Token != mcastToken {
		s.foreign++
		return
	}
	s.got[h.Imm]++
	s.copied++
	copy(s.slot(h.Imm), payload)
	// The place of a chunk that has arrived must not be a slot again.
	s.guess = slices.DeleteFunc(s.guess, func(psn uint32) bool { return psn == h.Imm })
}

func (s *mcastSink) Idle() { s.idle++ }

// mcastData is a buffer of different chunks.
func mcastData(chunk, chunks int) []byte {
	b := make([]byte, chunk*chunks)
	for i := range b {
		b[i] = byte(i) ^ byte(i/chunk*7+1) ^ byte(i>>8)
	}
	return b
}

// mcastSend sends the chunks of these numbers, in batches of limited size.
func mcastSend(t testing.TB, s fabric.Sender, data []byte, chunk, limit int, psns ...uint32) {
	t.Helper()
	for len(psns) > 0 {
		var b fabric.Batch
		for _, psn := range psns[:min(limit, len(psns))] {
			off := int(psn) * chunk
			b.Headers = append(b.Headers, wire.Header{Token: mcastToken, Comm: 3, Imm: psn})
			b.Payloads = append(b.Payloads, data[off:min(off+chunk, len(data))])
		}
		psns = psns[len(b.Headers):]
		if err := fabric.SendAll(s, &b, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
}

// mcastUntil receives until the sink has n chunks.
func mcastUntil(t testing.TB, r fabric.Receiver, s *mcastSink, n int) {
	t.Helper()
	for s.direct+s.copied < n {
		if err := r.Receive(s); err != nil {
			t.Fatal(err)
		}
	}
}

func mcastSame(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("byte %d of %d is %#x, not %#x", i, len(want), got[i], want[i])
			}
		}
		t.Fatal("length")
	}
}

func mcastRange(from, to int) []uint32 {
	var r []uint32
	for i := from; i < to; i++ {
		r = append(r, uint32(i))
	}
	return r
}

// mcastTell sends one datagram of a communicator.
func mcastTell(t testing.TB, m *Multicast, sub int, comm uint32) {
	t.Helper()
	b := &fabric.Batch{Headers: []wire.Header{{Token: mcastToken, Comm: comm}}, Payloads: [][]byte{{1}}}
	if err := fabric.SendAll(m.Sender(sub), b, time.Minute); err != nil {
		t.Fatal(err)
	}
}

// mcastHear receives until a datagram of a communicator comes.
func mcastHear(t testing.TB, m *Multicast, sub int, comm uint32) {
	t.Helper()
	s := &commSink{mcastSink: newMcastSink(m.Capabilities().Chunk, 1), comm: comm}
	for !s.heard {
		if err := m.Receiver(sub).Receive(s); err != nil {
			t.Fatal(err)
		}
	}
}

// commSink waits for a communicator's datagram.
type commSink struct {
	*mcastSink
	comm  uint32
	heard bool
}

func (s *commSink) Chunk(h wire.Header, payload []byte) {
	s.heard = s.heard || h.Comm == s.comm
	s.mcastSink.Chunk(h, payload)
}
