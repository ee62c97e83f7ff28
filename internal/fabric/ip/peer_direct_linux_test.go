package ip

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/allcast/allcast/internal/fabric/session"
)

// The rest of a frame that a socket does not take is queued, whole and in order.
func TestDirectQueuesTheRest(t *testing.T) {
	l, err := Listen(tcpV4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	p := newPeer(&TCP{}, 1)
	p.out = c.(*net.TCPConn)
	var want []byte
	for i := 0; ; i++ {
		payload := tcpFill(session.MaxPart, byte(i))
		h := session.Frame{Kind: session.Data, N: len(payload), Nth: uint32(i), Len: int64(len(payload))}
		want = append(h.AppendStream(want), payload...)
		p.box.next.frame(&h, nil)
		if !p.direct(payload) {
			break
		}
		if len(p.box.next.items) > 0 || len(p.box.next.arena) > 0 {
			t.Fatalf("%d items, %d bytes are queued after all was written", len(p.box.next.items), len(p.box.next.arena))
		}
	}
	rest := p.box.next.arena[p.box.next.items[0].from:p.box.next.items[0].to]
	got := make([]byte, len(want)-len(rest))
	if int(p.sent.Load()) != len(got) || len(rest) == 0 {
		t.Fatalf("sent %d of %d bytes, %d are queued", p.sent.Load(), len(want), len(rest))
	}
	if _, err := io.ReadFull(far, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want[:len(got)]) || !bytes.Equal(rest, want[len(got):]) {
		t.Error("the sent and the queued bytes are not the bytes of the frames")
	}
}
