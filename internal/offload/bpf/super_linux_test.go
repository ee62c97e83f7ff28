package bpf

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// segmented returns the control message that makes the kernel split a message into datagrams.
func segmented(size int) []byte {
	b := make([]byte, unix.CmsgSpace(2))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(2)))
	binary.NativeEndian.PutUint32(b[8:], unix.SOL_UDP)
	binary.NativeEndian.PutUint32(b[12:], unix.UDP_SEGMENT)
	binary.NativeEndian.PutUint16(b[16:], uint16(size))
	return b
}

// A super-packet may hold datagrams of several placements, foreign datagrams, and a shorter one at
// the end. Sockets with GRO receive it as one message, other sockets receive its datagrams.
func TestSuperPackets(t *testing.T) {
	for _, gro := range []bool{true, false} {
		t.Run(fmt.Sprintf("GRO=%v", gro), func(t *testing.T) {
			const chunk = 500
			w := newLoopback(t, Config{Chunk: chunk}, 1, gro)
			mem, data := w.alloc(t, 8000), randomBytes(8000)
			l1, l2 := specOf(0, chunk, 3500), specOf(0, chunk, 3499)
			a, p1 := w.open(t, mem[:4000], l1)
			b, p2 := w.open(t, mem[4000:], l2)
			c1, c2 := chunksOf(l1, data), chunksOf(l2, data[4000:])
			super := func(list ...[]byte) {
				var all []byte
				for _, d := range list {
					all = append(all, d...)
				}
				w.transmit(t, 0, all, segmented(chunk+wire.HeaderSize))
				if !gro {
					w.sent[0] += uint64(len(list)) - 1
				}
				w.settle(t)
			}
			super(c1[0], c2[1], c1[2], c2[3], c2[6])
			runs(t, p1, fabric.Run{PSN: 0, N: 1}, fabric.Run{PSN: 2, N: 1})
			runs(t, p2, fabric.Run{PSN: 1, N: 1}, fabric.Run{PSN: 3, N: 1}, fabric.Run{PSN: 6, N: 1})
			if w.received[0] != 0 {
				t.Error("a super-packet with placed chunks only reached the socket")
			}
			// With a foreign datagram, the socket receives the whole super-packet, or without GRO that datagram.
			foreign := datagram(header(1, 0), data[:chunk])
			super(c1[1], foreign, c2[0])
			runs(t, p1, fabric.Run{PSN: 1, N: 1})
			runs(t, p2, fabric.Run{PSN: 0, N: 1})
			if w.received[0] != 1 {
				t.Errorf("%d messages reached the socket, want 1", w.received[0])
			}
			if p1.take(1) {
				t.Error("the process could take a chunk that the program has placed")
			}
			super(c1[3], c1[3], c1[4], c1[5], c1[6], c1[0])
			ignored(t, p1, 2, 0, 0)
			// A truncated chunk is counted as foreign, and not placed.
			super(c2[2], c2[4][:100])
			ignored(t, p2, 0, 0, 1)
			same(t, mem[4000+4*chunk:4000+5*chunk], make([]byte, chunk))
			// A datagram truncated within its header reaches the socket, which counts it.
			before := w.received[0]
			super(c2[5], c2[4][:7])
			if w.received[0] != before+1 {
				t.Errorf("%d messages reached the socket, want 1", w.received[0]-before)
			}
			super(c2[4])
			same(t, mem[:3500], data[:3500])
			same(t, mem[4000:7499], data[4000:7499])
			p1.Close()
			p2.Close()
			a.Release()
			b.Release()
		})
	}
}
