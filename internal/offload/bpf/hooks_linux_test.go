package bpf

import (
	"net/netip"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
)

// The tcx hook places chunks as the socket filter does. With Share, packets that the hook has placed
// also reach the socket filter, which must not count them as duplicates.
func TestTCX(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 1000, Hook: TCX}, 2, false)
	mem, data := w.alloc(t, 2<<20), randomBytes(2<<20)
	l := specOf(1, 1000, 1<<20, 1<<20)
	a, p := w.open(t, mem, l)
	all := chunksOf(l, data)
	w.send(t, 1, all...)
	runs(t, p, fabric.Run{PSN: 0, N: l.PSNs})
	same(t, mem, data)
	ignored(t, p, 0, 0, 0)
	w.send(t, 1, all[7], datagram(header(l.Token, 1), nil))
	ignored(t, p, 1, 0, 1)
	if w.received[1] != 0 {
		t.Errorf("%d packets reached the socket", w.received[1])
	}
	p.Close()
	a.Release()
}

// Without Share, the tcx hook consumes the packets it has placed.
func TestTCXAlone(t *testing.T) {
	w := newLoopback(t, Config{Chunk: 1000, Hook: TCX}, 1, false)
	w.counters[shared].Store(0)
	mem, data := w.alloc(t, 100_001), randomBytes(100_001)
	l := specOf(0, 1000, len(mem))
	a, p := w.open(t, mem, l)
	for _, d := range chunksOf(l, data) {
		w.transmit(t, 0, d, nil)
	}
	until(t, "all chunks", func() bool { return p.l.counts.placed.Load() == uint64(l.PSNs) })
	same(t, mem, data)
	w.drain(t, 0, w.rx[0])
	if n := w.dropped[0].Load() + w.received[0]; n != 0 {
		t.Errorf("%d packets passed the hook", n)
	}
	w.sent[0] = 0
	w.send(t, 0, datagram(header(newToken(), 0), nil)) // unknown token
	if w.received[0] != 1 {
		t.Error("a datagram with an unknown token did not reach the socket")
	}
	p.Close()
	a.Release()
}

// A packet from our own source port may be our own. The hook passes it to the socket filter, which
// also compares the address.
func TestTCXOwn(t *testing.T) {
	for addr, want := range map[string]uint64{"127.0.0.1": 0, "127.0.0.2": 1} {
		w := newLoopback(t, Config{Chunk: 1000, Hook: TCX}, 1, false)
		w.Forget()
		n, err := w.Filter(w.rx[0], w.groups[0], netip.AddrPortFrom(netip.MustParseAddr(addr), w.from.Port()))
		must(t, err)
		w.dropped[0] = n
		l := specOf(0, 1000, 1000)
		a, p := w.open(t, w.alloc(t, 1000), l)
		w.send(t, 0, chunksOf(l, randomBytes(1000))...)
		if got := p.l.counts.placed.Load(); got != want || w.received[0] != 0 {
			t.Errorf("own address %s: %d chunks placed, %d reached the socket", addr, got, w.received[0])
		}
		p.Close()
		a.Release()
	}
}

// Faults occur at the configured rates, and every datagram is placed, lost or left to the socket.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		hook  Hook
		alone bool
	}{{"sockfilter", SockFilter, false}, {"tcx", TCX, false}, {"tcx alone", TCX, true}} {
		t.Run(c.name, func(t *testing.T) {
			const n = 4000
			faults := Fault{Drop: 0.1, Dup: 0.1, Reorder: 0.2, Seed: 1}
			w := newLoopback(t, Config{Chunk: 10, Hook: c.hook, Fault: faults}, 1, false)
			if c.alone {
				w.counters[shared].Store(0)
			}
			l := specOf(0, 10, 10*n)
			a, p := w.open(t, w.alloc(t, 10*n), l)
			for _, d := range chunksOf(l, randomBytes(10*n)) {
				w.transmit(t, 0, d, nil)
				w.drain(t, 0, w.rx[0]) // keeps the queue from overflowing
			}
			until(t, "all datagrams to be handled", func() bool {
				w.drain(t, 0, w.rx[0])
				return p.l.counts.placed.Load()+w.Lost()+w.received[0] >= n
			})
			placed, lost, left := p.l.counts.placed.Load(), w.Lost(), w.received[0]
			duplicates, late, foreign := p.Ignored()
			t.Logf("%d placed, %d lost, %d left, %d duplicates", placed, lost, left, duplicates)
			if placed+lost+left != n || late+foreign != 0 {
				t.Errorf("%d datagrams accounted for, want %d; %d late, %d foreign", placed+lost+left, n, late, foreign)
			}
			for what, got := range map[string][2]uint64{
				"lost": {lost, n / 10}, "left": {left, n / 5}, "duplicates": {duplicates, n / 10},
			} {
				if got[0] < got[1]*3/4 || got[0] > got[1]*5/4 {
					t.Errorf("%d %s, want about %d", got[0], what, got[1])
				}
			}
			p.Close()
			a.Release()
		})
	}
}
