package ip

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

func TestTCPWrongSecret(t *testing.T) {
	w := newTCPWorld(t, 3, tcpV4, func(cfg *TCPConfig, _ *tcpRec) {
		if cfg.Rank == 2 {
			cfg.Secret = []byte("another key")
		}
	})
	w.ranks[0].Send(2, []byte("x"))
	w.ranks[2].Send(1, []byte("x"))
	if err := w.recs[0].waitLost(t, 2); !errors.Is(err, errAuthKey) {
		t.Error(err)
	}
	if err := w.recs[2].waitLost(t, 1); !errors.Is(err, errAuthKey) {
		t.Error(err)
	}
	w.ranks[0].Send(1, []byte("fine"))
	w.recs[1].waitMsg(t, 0, "fine")
	for _, r := range []int{1, 2} {
		if err := w.ranks[r].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.recs[1].lost) != 0 || len(w.recs[2].msgs) != 0 {
		t.Error("the handler was called for a stranger")
	}
	for _, r := range []int{1, 2} {
		if n := w.ranks[r].Stats().RejectedConns; n != 1 {
			t.Errorf("rank %d counts %d strangers", r, n)
		}
	}
}

func TestTCPWrongWorld(t *testing.T) {
	w := newTCPWorld(t, 2, tcpV4, nil)
	for _, c := range []struct {
		self authSelf
		to   int
		want error
	}{
		{authSelf{rank: 1, size: 3, secret: tcpSecret}, 0, errAuthSize},
		{authSelf{rank: 0, size: 2, secret: tcpSecret}, 0, errAuthRank},
		{authSelf{rank: 0, size: 2, secret: tcpSecret}, 1, errAuthRank},
		{authSelf{rank: 5, size: 2, secret: tcpSecret}, 0, errAuthRank},
	} {
		nc, err := net.Dial("tcp", w.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.self.dial(nc, c.to); !errors.Is(err, c.want) {
			t.Errorf("%d of %d to %d: %v", c.self.rank, c.self.size, c.to, err)
		}
		_ = nc.Close()
	}
}

// A rank has one connection to another. A second one is refused, and does no harm.
func TestTCPTwice(t *testing.T) {
	w, f := newTCPFake(t, nil)
	first := f.dial(t, w)
	c, err := net.Dial("tcp", w.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.self.dial(c, 0); !errors.Is(err, errAuthTwice) {
		t.Error(err)
	}
	_ = c.Close()
	_, _ = first.Write(tcpFrame(session.Frame{Kind: session.Message}, "hello"))
	w.recs[0].waitMsg(t, 1, "hello")
}

// Peers can connect while many strangers send garbage, nothing, or half a handshake.
func TestTCPGarbage(t *testing.T) {
	w := newTCPWorld(t, 2, tcpV4, nil)
	rnd := rand.New(rand.NewPCG(1, 2))
	strangers := 3 * w.ranks[0].pending.limit
	for i := range strangers {
		c, err := net.Dial("tcp", w.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		switch i % 4 {
		case 0: // silent
		case 1:
			b := make([]byte, 4096)
			for j := range b {
				b[j] = byte(rnd.Uint32())
			}
			_, _ = c.Write(b)
		case 2:
			_, _ = io.WriteString(c, "ALLCAST\x01")
		case 3:
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}
	w.ranks[1].Send(0, []byte("hello"))
	w.recs[0].waitMsg(t, 1, "hello")
	if err := w.ranks[0].Close(); err != nil {
		t.Fatal(err)
	}
	if n := w.ranks[0].Stats().RejectedConns; n != uint64(strangers) {
		t.Errorf("%d strangers, %d counted", strangers, n)
	}
	if len(w.recs[0].lost) != 0 {
		t.Error(w.recs[0].lost)
	}
}

// A frame that no correct peer sends ends the connection, with a reason.
func TestTCPMalformed(t *testing.T) {
	op := fabric.OpKey{Comm: 1}
	cases := map[string][]byte{
		"unknown kind":     {99, 0, 0, 0, 0, 0, 0, 0},
		"reserved bytes":   {1, 0, 1, 0, 0, 0, 0, 0},
		"long message":     {1, 0, 0, 0, 0xff, 0xff, 0xff, 0},
		"long part":        (&session.Frame{Kind: session.Data, N: session.MaxPart + 1, Len: 1 << 40}).AppendStream(nil),
		"beyond the piece": (&session.Frame{Kind: session.Data, N: 11, Len: 10}).AppendStream(nil),
		"negative length":  (&session.Frame{Kind: session.Data, N: 0, Len: -1}).AppendStream(nil),
		"empty part":       (&session.Frame{Kind: session.Data, N: 0, Len: 5}).AppendStream(nil),
		"continues none":   (&session.Frame{Kind: session.Data, N: 1, Len: 5, Off: 2}).AppendStream(nil),
		"goodbye and more": {5, 0, 0, 0, 1, 0, 0, 0},
		"overflow": session.AppendSpans((&session.Frame{Kind: session.Read, N: session.SpanSize}).AppendStream(nil),
			[]fabric.Span{{Off: 1<<63 - 1, Len: 1}}),
		"read of nothing": (&session.Frame{Kind: session.Read}).AppendStream(nil),
		"half a span": append((&session.Frame{Kind: session.Read, N: session.SpanSize - 1}).AppendStream(nil),
			make([]byte, session.SpanSize-1)...),
		"many spans": (&session.Frame{
			Kind: session.Read, N: (fabric.MaxSpans + 1) * session.SpanSize,
		}).AppendStream(nil),
		"changes the piece": append(
			tcpFrame(session.Frame{Kind: session.Data, Op: op, Len: 5}, "ab"),
			tcpFrame(session.Frame{Kind: session.Data, Op: op, Nth: 1, Len: 5, Off: 2}, "c")...),
	}
	for name, b := range cases {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			w, f := newTCPFake(t, nil)
			c := f.dial(t, w)
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := w.recs[0].waitLost(t, 1); !errors.Is(err, session.ErrMalformed) {
				t.Error(err)
			}
		})
	}
	t.Run("on-our-connection", func(t *testing.T) {
		w, f := newTCPFake(t, nil)
		w.ranks[0].Send(1, []byte("x"))
		_, _ = f.accept(t).Write(tcpFrame(session.Frame{Kind: session.Message}, "hello"))
		if err := w.recs[0].waitLost(t, 1); !errors.Is(err, session.ErrMalformed) {
			t.Error(err)
		}
	})
}
