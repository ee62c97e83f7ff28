package aggregate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/testenv"
)

// Aggregators of all levels want what a rank offers and they miss, from that rank only. A want is no sum.
func TestOffers(t *testing.T) {
	top := listen(t, Config{})
	leaf := listen(t, Config{Parent: top.Addr().String()})
	w := join(t, parseTree(t, fmt.Sprintf("%v=2;%v=0-1>%v", top.Addr(), leaf.Addr(), top.Addr()), 3), nil)
	w.ready(t)
	const comm, number, owner, place = 5, 1, 2, 3
	h := inc.Header{
		Kind: inc.Offer, Try: 1, Type: uint8(reduce.U32), Reduce: uint8(reduce.Sum), Comm: comm, Number: number,
		Token: w.ports[0].Token(comm, number), Place: place, Owner: owner,
	}
	send := func(rank int, kind inc.Kind, payload ...byte) {
		t.Helper()
		h.Kind = kind
		if err := w.ports[rank].Send([]inc.Header{h}, [][]byte{payload}); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(rank int, kind inc.Kind, payload string) {
		t.Helper()
		a := <-w.sums
		if a.rank != rank || a.h.Kind != kind || a.h.Place != place || a.h.Try != h.Try || string(a.payload) != payload {
			t.Fatalf("rank %d receives %+v, %x; want kind %d for rank %d", a.rank, a.h, a.payload, kind, rank)
		}
	}
	one := binary.LittleEndian.AppendUint32(nil, 1)
	for rank := range 2 {
		send(rank, inc.Offer)
		receive(rank, inc.Want, "")
		send(rank, inc.Contribution, one...)
	}
	receive(owner, inc.Result, "\x02\x00\x00\x00")
	h.Try = 2
	send(0, inc.Offer)
	receive(owner, inc.Result, "\x02\x00\x00\x00")

	want := JobStats{Contributions: 2, Duplicates: 1, Offers: 3, Wanted: 2, Sums: 1, Repeated: 1}
	if !testenv.Soon(func() bool { return len(leaf.State().Jobs) == 1 && leaf.State().Jobs[0].Stats == want }) {
		t.Errorf("%+v, want %+v", leaf.State().Jobs, want)
	}
	if !testenv.Soon(func() bool { return leaf.State().Data.Sums == 2 }) {
		t.Errorf("the leaf counts %d sums, and sent 2 sums and 2 wants", leaf.State().Data.Sums)
	}
}

// A want has no payload.
func TestWantWithPayload(t *testing.T) {
	w := join(t, oneLevel(t, listen(t, Config{}), 2), nil)
	w.ready(t)
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(w.ports[0].Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	var b [inc.HeaderSize + 4]byte
	h := inc.Header{Kind: inc.Want, Session: 7}
	h.Put(b[:])
	for _, size := range []int{len(b), inc.HeaderSize} {
		if _, err := c.Write(b[:size]); err != nil {
			t.Fatal(err)
		}
	}
	if a := <-w.sums; a.h != h || len(a.payload) != 0 || w.ports[0].Stats().Foreign != 1 {
		t.Errorf("receives %+v with %d bytes; %+v", a.h, len(a.payload), w.ports[0].Stats())
	}
}

// An aggregator of version 1 drops offers, so that a rank would wait for its wants. Neither side accepts the other.
func TestVersionWithoutOffers(t *testing.T) {
	p := newPreamble()
	binary.LittleEndian.PutUint16(p[len(magic):], 1)
	if err := p.check(); !errors.Is(err, errVersion) {
		t.Errorf("version 1: %v", err)
	}
}
