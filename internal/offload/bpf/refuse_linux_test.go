package bpf

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// The program places only valid chunks. It counts invalid datagrams with the placement's token, and
// passes datagrams with other tokens to the socket.
func TestRefuse(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 2, false)
	mem := w.alloc(t, 1000)
	l := specOf(0, 100, 250, 250)
	a, p := w.open(t, mem, l)
	long, short := make([]byte, 101), make([]byte, 99)
	for i := range long {
		long[i] = 0xee
	}
	good := long[:100]
	other := func(change func(h *wire.Header)) wire.Header {
		h := header(l.Token, 1)
		change(&h)
		return h
	}
	for name, d := range map[string][]byte{
		"too long":                datagram(header(l.Token, 1), long),
		"too short":               datagram(header(l.Token, 1), short),
		"a full chunk as tail":    datagram(header(l.Token, 2), good),
		"no payload":              datagram(header(l.Token, 1), nil),
		"a chunk beyond the last": datagram(header(l.Token, 6), good),
		"the largest PSN":         datagram(header(l.Token, testMask), good),
		"another communicator":    datagram(other(func(h *wire.Header) { h.Comm++ }), good),
		"another slot":            datagram(other(func(h *wire.Header) { h.Imm += testMask + 1 }), good),
		"no slot":                 datagram(other(func(h *wire.Header) { h.Imm &= testMask }), good),
	} {
		t.Log(name)
		w.send(t, 0, d)
		ignored(t, p, 0, 0, 1)
		if w.received[0] != 0 {
			t.Errorf("%d datagrams reached the socket", w.received[0])
		}
	}
	for name, d := range map[string][]byte{
		"another token":    datagram(other(func(h *wire.Header) { h.Token++ }), good),
		"a free placement": datagram(other(func(h *wire.Header) { h.Token = 0 }), good),
		"half a header":    good[:wire.HeaderSize-1],
		"empty":            {},
	} {
		before := w.received[0]
		w.send(t, 0, d)
		if w.received[0] != before+1 {
			t.Errorf("%s did not reach the socket", name)
		}
	}
	w.send(t, 1, datagram(header(l.Token, 1), good)) // another subgroup
	if w.received[1] != 1 {
		t.Error("a datagram of another subgroup did not reach its socket")
	}
	ignored(t, p, 0, 0, 0)
	runs(t, p)
	same(t, mem, make([]byte, 1000))
	p.Close()
	a.Release()
}

// The filter drops packets that this process has sent.
func TestOwnPackets(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 1, false)
	fd := udpSocket(t, w.groups[0])
	m := &unix.IPMreqn{Multiaddr: w.groups[0].Addr().As4(), Ifindex: int32(w.cfg.Interface.Index)}
	must(t, unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, m))
	w.Forget()
	n, err := w.Filter(fd, w.groups[0], w.from)
	must(t, err)
	if w.dropped[0] != n || n.Load() != 0 {
		t.Errorf("%d packets counted before the first one was sent", n.Load())
	}
	must(t, unix.Close(w.rx[0]))
	w.rx[0] = fd
	l := specOf(0, 100, 100)
	mem := w.alloc(t, 100)
	a, p := w.open(t, mem, l)
	w.send(t, 0, datagram(header(l.Token, 0), randomBytes(100)), datagram(header(1, 0), nil))
	if n.Load() != 2 || w.received[0] != 0 {
		t.Errorf("%d packets were dropped, %d reached the socket", n.Load(), w.received[0])
	}
	runs(t, p)
	same(t, mem, make([]byte, 100))
	p.Close()
	a.Release()
}

// The program does not overwrite a chunk that is in place.
func TestDuplicates(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 100}, 1, false)
	l := specOf(0, 100, 300)
	mem, data := w.alloc(t, 300), randomBytes(300)
	a, p := w.open(t, mem, l)
	w.send(t, 0, chunksOf(l, data)...)
	for range 5 {
		w.send(t, 0, datagram(header(l.Token, 1), make([]byte, 100)))
	}
	same(t, mem, data)
	ignored(t, p, 5, 0, 0)
	p.Close()
	a.Release()
}

// A chunk that the process has claimed for a read counts as late, one that it has placed as duplicate.
func TestClaim(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 10}, 1, false)
	l := specOf(0, 10, 1000)
	mem, data := w.alloc(t, 1000), randomBytes(1000)
	a, p := w.open(t, mem, l)
	all := chunksOf(l, data)
	w.send(t, 0, all[40:50]...)
	p.claim(30, 40)
	runs(t, p, fabric.Run{PSN: 40, N: 10})
	if !p.take(5) || p.take(5) || p.take(45) || p.take(30) {
		t.Error("Take failed for a free chunk, or succeeded for a claimed one")
	}
	w.send(t, 0, all...)
	ignored(t, p, 10+1, 30, 0)
	runs(t, p, fabric.Run{PSN: 0, N: 5}, fabric.Run{PSN: 6, N: 24}, fabric.Run{PSN: 70, N: 30})
	clear(data[50:60])
	clear(data[300:400])
	clear(data[500:700])
	same(t, mem, data)
	p.claim(0, 100) // includes chunks in place
	p.claim(99, 0)
	p.Close()
	a.Release()
}

// Filter refuses two subgroups with the same port, because programs tell subgroups apart by ports.
func TestSamePort(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 10}, 1, false)
	fd := udpSocket(t, netip.AddrPortFrom(own.Addr(), 0))
	if _, err := w.Filter(fd, netip.AddrPortFrom(own.Addr(), w.groups[0].Port()), own); err == nil {
		t.Error("Filter accepted two subgroups with the same port")
	}
}
