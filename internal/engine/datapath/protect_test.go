package datapath

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/engine/queue"
	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/seal"
	"github.com/allcast/allcast/internal/wire"
)

// datagram is what a wire carries.
type datagram struct {
	h       wire.Header
	payload []byte
}

// wiretap is a network that keeps a copy of each datagram that it was offered, in order. It takes some of
// each batch, and is busy then.
type wiretap struct {
	takes   int // datagrams per batch
	offered []datagram
	taken   []datagram
}

func (w *wiretap) Send(b *fabric.Batch) (int, error) {
	for i, h := range b.Headers {
		w.offered = append(w.offered, datagram{h, bytes.Clone(b.Payloads[i])})
	}
	n := min(len(b.Headers), w.takes)
	w.taken = append(w.taken, w.offered[len(w.offered)-len(b.Headers):][:n]...)
	if n < len(b.Headers) {
		return n, fabric.ErrBusy
	}
	return n, nil
}

func (w *wiretap) Completed() uint64   { return uint64(len(w.taken)) }
func (w *wiretap) Await(time.Duration) {}

// protectedPair is a sender at rank 0 and a receiver at rank 1 of a protected Broadcast of one super-packet.
type protectedPair struct {
	d    *Datapath
	tap  *wiretap
	text []byte // what rank 0 sends
	s    *sender
	from *Operation
	w    *receiver
	to   *landing
	mem  []byte // where rank 1 receives
}

// bothProtections runs a test with checksums and with sealed datagrams.
func bothProtections(t *testing.T, f func(t *testing.T, x *protectedPair)) {
	t.Helper()
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure %v", secure), func(t *testing.T) { f(t, newProtectedPair(t, secure)) })
	}
}

func newProtectedPair(t *testing.T, secure bool) *protectedPair {
	t.Helper()
	x := &protectedPair{tap: &wiretap{takes: benchBatch}, text: make([]byte, benchBatch*benchChunk)}
	x.d, _ = bare(t)
	x.d.caps.Chunk, x.d.caps.Batch = benchChunk, benchBatch
	x.d.protect.sums, x.d.protect.head = !secure, wire.HeaderSize+wire.SumSize
	x.from, x.to = bigBroadcast(t, benchBatch), benchLanding(t, benchBatch)
	if secure {
		x.d.protect.master = seal.NewMaster([]byte("secret"), nil)
		x.d.protect.head = wire.HeaderSize
		key := &sealing{x.d.protect.master.Datagrams("world", []int{0, 1}, 0), []int{0, 1}}
		x.from.seal, x.to.op.seal = key, key
	}
	_, _ = rand.NewChaCha8([32]byte{}).Read(x.text) // never fails
	x.from.mem.Store(&x.text)
	x.mem = make([]byte, len(x.text))
	x.to.op.mem.Store(&x.mem)
	x.s = &sender{
		d: x.d, tx: []fabric.Sender{x.tap}, posted: make([]uint64, 1), max: benchBatch, cmds: queue.New[command](),
	}
	x.w = newReceiver(x.d, 0, nil)
	x.w.in.Open(x.to.op.token, x.to.place)
	return x
}

// send multicasts all chunks, as often as the network is busy.
func (x *protectedPair) send(t *testing.T) {
	t.Helper()
	c := command{kind: commandMulticast, op: x.from, n: benchBatch, total: benchBatch}
	for range benchBatch {
		if x.s.multicast(&c) {
			return
		}
	}
	t.Fatal("the network took nothing")
}

// flip changes a bit in byte i of a datagram, header included. A second call changes it back.
func (x *protectedPair) flip(d *datagram, i int) {
	if i >= x.d.protect.head {
		d.payload[i-x.d.protect.head] ^= 1 << (i % 8)
		return
	}
	var head [wire.HeaderSize + wire.SumSize]byte
	d.h.PutSum(head[:])
	head[i] ^= 1 << (i % 8)
	d.h = wire.ParseSum(head[:])
}

// A changed byte of a super-packet places nothing, whichever it is. The unchanged datagrams do.
func TestEveryByteOfASuperPacketIsProtected(t *testing.T) {
	bothProtections(t, func(t *testing.T, x *protectedPair) {
		t.Helper()
		x.send(t)
		for k, d := range x.tap.taken {
			for i := range x.d.protect.head + len(d.payload) {
				x.flip(&d, i)
				if x.w.Chunk(d.h, d.payload); x.to.place.NextTaken(0, benchBatch) < benchBatch {
					t.Fatalf("byte %d of datagram %d was changed, and a chunk counts as placed", i, k)
				}
				x.flip(&d, i)
			}
			if x.w.corrupt.Load() == 0 {
				t.Error("changed datagrams are not counted")
			}
		}
		for _, d := range x.tap.taken {
			x.w.Chunk(d.h, d.payload)
		}
		if x.to.place.NextFree(0, benchBatch) < benchBatch || !bytes.Equal(x.mem, x.text) {
			t.Error("unchanged datagrams are not in place")
		}
	})
}

// Datagrams with checksums are received in place. A changed byte is detected there, and nothing from that
// chunk on counts as placed.
func TestEveryByteInPlaceIsProtected(t *testing.T) {
	x := newProtectedPair(t, false)
	x.send(t)
	first := x.tap.taken[0]
	x.w.Chunk(first.h, first.payload)
	arrive := func(k, i int) int {
		slots := make([][]byte, benchBatch)
		n := x.w.Expect(slots)
		headers := make([]wire.Header, n)
		for j := range n {
			d := x.tap.taken[j+1]
			if j == k {
				x.flip(&d, i)
			}
			headers[j] = d.h
			copy(slots[j], d.payload)
			if j == k {
				x.flip(&d, i)
			}
		}
		return x.w.Arrived(headers)
	}
	for i := range wire.HeaderSize + wire.SumSize + benchChunk {
		if n := arrive(0, i); n != 0 {
			t.Fatalf("byte %d of the first datagram was changed, and %d count as placed", i, n)
		}
	}
	if n := arrive(3, wire.HeaderSize+wire.SumSize+1000); n != 3 {
		t.Errorf("the fourth datagram was changed, and %d count as placed", n)
	}
	for _, d := range x.tap.taken[4:] {
		x.w.Chunk(d.h, d.payload)
	}
	if !bytes.Equal(x.mem, x.text) {
		t.Error("unchanged datagrams are not in place")
	}
}

// However often the network is busy, it takes each nonce once. A datagram that was refused is offered again
// with the same bytes.
func TestNoNonceIsUsedTwice(t *testing.T) {
	x := newProtectedPair(t, true)
	x.tap.takes = 2
	x.send(t)
	if len(x.tap.offered) <= benchBatch {
		t.Fatal("the network was never busy")
	}
	taken := map[seal.Nonce]bool{}
	nonce := func(d datagram) seal.Nonce {
		_, psn := x.d.cfg.Layout.Split(d.h.Imm)
		return x.from.seal.nonce(x.from.geo, 0, psn, d.h.Imm)
	}
	for _, d := range x.tap.taken {
		if taken[nonce(d)] {
			t.Errorf("nonce %+v was taken twice", nonce(d))
		}
		taken[nonce(d)] = true
	}
	offered := map[seal.Nonce][]byte{}
	for _, d := range x.tap.offered {
		if old, ok := offered[nonce(d)]; ok && !bytes.Equal(old, d.payload) {
			t.Errorf("nonce %+v was used for different texts", nonce(d))
		}
		offered[nonce(d)] = d.payload
	}
	if len(taken) != benchBatch || len(offered) != benchBatch {
		t.Errorf("%d nonces were taken and %d offered, of %d chunks", len(taken), len(offered), benchBatch)
	}
}

// The fast checksum is that of the header.
func TestChecksum(t *testing.T) {
	h := wire.Header{Token: 0x0123456789abcdef, Comm: 0xfedcba98, Imm: 0x76543210}
	payload := make([]byte, 9000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(payload) // never fails
	for _, n := range []int{0, 1, 15, 100, 511, 512, 1500, 8952, 9000} {
		if got, want := checksum(&h, payload[:n]), h.Checksum(payload[:n]); got != want {
			t.Errorf("%d bytes: %#x, not %#x", n, got, want)
		}
	}
}
