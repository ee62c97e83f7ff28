package aggregate

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"weak"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/testenv"
)

// A worker adds and sends without allocations, once the slots exist.
func TestNoAllocations(t *testing.T) {
	if testenv.Race {
		t.Skip("the race detector allocates")
	}
	s := listen(t, Config{})
	w := join(t, oneLevel(t, s, 3), nil)
	window := w.ready(t)
	sock, err := openSocket(netip.AddrPortFrom(home, 0), socketOptions{buffer: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.close()
	k := newWorker(s, sock)
	k.table = *s.table.Load()
	d := make([]byte, inc.HeaderSize+1024)
	h := inc.Header{
		Kind: inc.Contribution, Type: uint8(reduce.F32), Reduce: uint8(reduce.Sum), Session: 7, Comm: 5, Number: 1,
		Token: w.ports[0].Token(5, 1),
	}
	round := func() {
		for child := range uint16(2) { // the owner is the third
			for i := range uint32(32) {
				c := h
				c.Place, c.Child, c.Owner = h.Place+i, 1-child, 2
				c.Put(d)
				k.handle(d)
			}
		}
		k.send()
		k.count(1)
		h.Place += 32
	}
	for range 2 * window / 32 {
		round()
	}
	if n := testing.AllocsPerRun(50, round); n > 0 {
		t.Errorf("%v allocations for 64 datagrams", n)
	}
	if st := s.State(); st.Data.Invalid+st.Data.Forged+st.Data.Unsent != 0 || st.Data.Sums == 0 {
		t.Errorf("%+v", st.Data)
	}
}

// Poll takes sums without Receive's goroutine, and costs no allocation when there are none.
func TestPoll(t *testing.T) {
	s := listen(t, Config{})
	p, _ := openPort(t, portConfig(oneLevel(t, s, 2), 0))
	if p.Poll() {
		t.Error("sums before Receive")
	}
	got := make(chan uint32, 1)
	ended := make(chan error)
	go func() { ended <- p.Receive(func(h *inc.Header, _ []byte) { got <- h.Place }, func() {}) }()
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for place := range uint32(20) {
		var b [inc.HeaderSize + 4]byte
		h := inc.Header{Kind: inc.Result, Session: 7, Place: place}
		h.Put(b[:])
		if _, err := c.Write(b[:]); err != nil {
			t.Fatal(err)
		}
		testenv.Soon(func() bool { p.Poll(); return len(got) > 0 }) // or Receive takes it
		if at := <-got; at != place {
			t.Errorf("place %d, want %d", at, place)
		}
	}
	if n := testing.AllocsPerRun(100, func() { p.Poll() }); n > 0 && !testenv.Race {
		t.Errorf("%v allocations", n)
	}
	_ = p.Close()
	if err := <-ended; err != ErrClosed || p.Poll() {
		t.Error(err)
	}
}

// Sums to the same rank, and contributions to the same aggregator, travel in trains where the system can.
func TestTrains(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has super-packets")
	}
	tree, top, left, _ := twoLevels(t, 4, nil)
	w := join(t, tree, nil)
	w.reduceScatter(t, 1, 1, w.ready(t), 10_000) // less than a window: each rank sends once
	for name, d := range map[string]Data{"top": top.State().Data, "leaf": left.State().Data} {
		t.Logf("%s: %d datagrams in %d reads, %d sums in %d writes", name, d.Datagrams, d.Reads, d.Sums, d.Writes)
		if d.Reads*2 > d.Datagrams || d.Writes*3 > d.Sums*2 {
			t.Errorf("%s: too many system calls", name)
		}
	}
}

// Without super-packets, single datagrams carry the same data.
func TestWithoutTrains(t *testing.T) {
	s := listen(t, Config{})
	w := join(t, oneLevel(t, s, 3), nil)
	for _, p := range w.ports {
		p.sock.gso.Store(false)
	}
	s.sockets[0].gso.Store(false)
	w.reduceScatter(t, 1, 1, w.ready(t), 50_000)
}

// Chunks may be of any size, and the last one of a block is shorter.
func TestChunkSizes(t *testing.T) {
	for _, chunk := range []int{8, 1440, MaxChunk} {
		t.Run(fmt.Sprint(chunk), func(t *testing.T) {
			s := listen(t, Config{Buffer: 32 << 20})
			w := join(t, oneLevel(t, s, 3), func(_ int, cfg *PortConfig) { cfg.Chunk = chunk })
			window := w.ready(t)
			w.reduceScatter(t, 1, 1, window, int64(10*chunk+4))
		})
	}
}

// One aggregator serves ranks with both versions of IP.
func TestBothVersions(t *testing.T) {
	v6 := netip.IPv6Loopback()
	if l, err := net.ListenUDP("udp6", &net.UDPAddr{IP: v6.AsSlice()}); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		_ = l.Close()
	}
	s := listen(t, Config{Listen: ":0"})
	port := s.Addr().Port()
	for _, ip := range []netip.Addr{home, v6} {
		t.Run(ip.String(), func(t *testing.T) {
			tree := parseTree(t, fmt.Sprintf("%v=0-2", netip.AddrPortFrom(ip, port)), 3)
			w := join(t, tree, func(_ int, cfg *PortConfig) { cfg.Local = ip })
			w.reduceScatter(t, 1, 1, w.ready(t), 50_000)
		})
	}
}

// A job that has ended leaves no memory behind, although no datagram follows its last one.
func TestMemoryOfEndedJobs(t *testing.T) {
	s := listen(t, Config{})
	w := join(t, oneLevel(t, s, 3), nil)
	w.reduceScatter(t, 1, 1, w.ready(t), 50_000)
	j := weak.Make((*s.table.Load())[7])
	w.close()
	if !testenv.Soon(func() bool { runtime.GC(); return j.Value() == nil }) {
		t.Errorf("the job is still there: %+v", s.State().Jobs)
	}
}

// Two jobs at a time do not disturb each other, although they use the same communicators and numbers.
func TestTwoJobs(t *testing.T) {
	tree, _, _, _ := twoLevels(t, 4, nil)
	a := join(t, tree, nil)
	b := join(t, tree, func(_ int, cfg *PortConfig) {
		cfg.Session, cfg.Job, cfg.Secret = 8, "other", []byte("a secret of its own")
	})
	windowA, windowB := a.ready(t), b.ready(t)
	for n := range uint32(3) {
		a.reduceScatter(t, 1, n+1, windowA, 20_000)
		b.reduceScatter(t, 1, n+1, windowB, 30_000)
	}
}
