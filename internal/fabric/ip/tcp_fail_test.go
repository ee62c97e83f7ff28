package ip

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// tcpFake is a peer that a test controls: it completes the handshake, and then does what the test wants.
type tcpFake struct {
	self authSelf
	l    *net.TCPListener
}

// newTCPFake starts two ranks. Rank 0 takes the fake for rank 1.
func newTCPFake(t *testing.T, change func(*TCPConfig, *tcpRec)) (*tcpWorld, *tcpFake) {
	t.Helper()
	l, err := Listen(tcpV4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	f := &tcpFake{self: authSelf{rank: 1, size: 2, secret: tcpSecret}, l: l}
	w := newTCPWorld(t, 2, tcpV4, func(cfg *TCPConfig, rec *tcpRec) {
		cfg.Addrs = slices.Clone(cfg.Addrs)
		cfg.Addrs[1] = l.Addr().String()
		if change != nil {
			change(cfg, rec)
		}
	})
	return w, f
}

// accept takes the connection of a rank.
func (f *tcpFake) accept(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := f.l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, _, err := f.self.accept(c); err != nil {
		t.Fatal(err)
	}
	if err := authSend(c, uint8(authOK)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// dial makes a connection to rank 0.
func (f *tcpFake) dial(t *testing.T, w *tcpWorld) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", w.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := f.self.dial(c, 0); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func tcpFrame(h session.Frame, payload string) []byte {
	h.N = len(payload)
	return append(h.AppendStream(nil), payload...)
}

// A peer that dies is lost, whichever side dialled, and even if no rank sends.
func TestTCPDeath(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		w, f := newTCPFake(t, nil)
		w.ranks[0].Send(1, []byte("hello"))
		c := f.accept(t)
		_ = c.SetLinger(0) // like a crash with unread bytes
		_ = c.Close()
		if err := w.recs[0].waitLost(t, 1); errors.Is(err, fabric.ErrGoodbye) {
			t.Error(err)
		}
	})
	t.Run("theirs", func(t *testing.T) {
		w, f := newTCPFake(t, nil)
		c := f.dial(t, w)
		_, _ = c.Write(tcpFrame(session.Frame{Kind: session.Message}, "last words"))
		_ = c.Close()
		if err := w.recs[0].waitLost(t, 1); errors.Is(err, fabric.ErrGoodbye) {
			t.Error(err)
		}
		w.recs[0].waitMsg(t, 1, "last words")
	})
	t.Run("goodbye", func(t *testing.T) {
		w, f := newTCPFake(t, nil)
		c := f.dial(t, w)
		_, _ = c.Write(tcpFrame(session.Frame{Kind: session.Goodbye}, ""))
		if err := w.recs[0].waitLost(t, 1); !errors.Is(err, fabric.ErrGoodbye) {
			t.Error(err)
		}
	})
	t.Run("in a frame", func(t *testing.T) {
		w, f := newTCPFake(t, nil)
		c := f.dial(t, w)
		b := tcpFrame(session.Frame{Kind: session.Data, Len: 100}, strings.Repeat("x", 50))
		_, _ = c.Write(b[:len(b)-10])
		_ = c.Close()
		if err := w.recs[0].waitLost(t, 1); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		if len(w.recs[0].pieces[1]) != 0 {
			t.Error("half a part was delivered")
		}
	})
}

// The handler receives a peer's last message before the loss of the peer, although the connection to
// the peer broke before.
func TestTCPVerdictBeforeLoss(t *testing.T) {
	w, f := newTCPFake(t, func(cfg *TCPConfig, _ *tcpRec) { cfg.limits.grace = tcpPatience })
	w.ranks[0].Send(1, []byte("hello"))
	ours, theirs := f.accept(t), f.dial(t, w)
	_ = ours.SetLinger(0)
	_ = ours.Close()
	until(t, "our connection ended", func() bool { return w.ranks[0].conns() < 2 })
	_, _ = theirs.Write(tcpFrame(session.Frame{Kind: session.Message}, "verdict"))
	_, _ = theirs.Write(tcpFrame(session.Frame{Kind: session.Goodbye}, ""))
	if err := w.recs[0].waitLost(t, 1); !errors.Is(err, fabric.ErrGoodbye) {
		t.Error(err)
	}
	if !slices.Contains(w.recs[0].msgs[1], "verdict") {
		t.Error("the verdict is lost")
	}
}

// A peer that does not take data is lost, and puts to it end.
func TestTCPStalled(t *testing.T) {
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprintf("connected both ways %v", both), func(t *testing.T) {
			w, f := newTCPFake(t, nil)
			w.ranks[0].Send(1, []byte("hello"))
			f.accept(t)
			want := 1
			if both {
				f.dial(t, w)
				want++
			}
			until(t, "connected", func() bool { return w.ranks[0].conns() == want })
			p := w.ranks[0].peer(1)
			p.mu.Lock() // under which the writer reads it
			w.ranks[0].cfg.Timeout = 200 * time.Millisecond
			p.mu.Unlock()
			data := make([]byte, 256*session.MaxPart) // more than the kernel buffers
			for i := range uint32(3) {
				w.ranks[0].Put(1, fabric.Piece{Nth: i, Len: int64(len(data))}, data)
			}
			t.Log(w.recs[0].waitLost(t, 1))
			rec := w.recs[0]
			rec.wait(t, "puts done", func() bool { return len(rec.done[1]) == 3 })
			w.ranks[0].Put(1, fabric.Piece{Nth: 3}, nil)
			rec.wait(t, "a late put done", func() bool { return len(rec.done[1]) == 4 })
		})
	}
}

// A cancelled put ends although the peer takes nothing, and the connection stays open.
func TestTCPCancel(t *testing.T) {
	w, f := newTCPFake(t, nil)
	rec := w.recs[0]
	gone, stays := fabric.OpKey{Seq: 1}, fabric.OpKey{Seq: 2}
	data := make([]byte, 256*session.MaxPart)
	w.ranks[0].Put(1, fabric.Piece{Op: gone, Nth: 1, Len: int64(len(data))}, data)
	c := f.accept(t)
	fr := newFrameReader(c)
	if h, err := fr.next(); err != nil || h.Op != gone || skip(fr, h.N) != nil {
		t.Fatal(h, err)
	}
	w.ranks[0].Put(1, fabric.Piece{Op: stays, Nth: 2, Len: 3}, []byte("abc"))
	w.ranks[0].Put(1, fabric.Piece{Op: gone, Nth: 3, Len: int64(len(data))}, data)
	w.ranks[0].Cancel(gone)
	rec.wait(t, "cancelled puts done", func() bool {
		n := 0
		for _, p := range rec.done[1] {
			if p.Op == gone {
				n++
			}
		}
		return n == 2
	})
	for i := range data { // a race with a writer that still reads it
		data[i] = 1
	}
	for {
		h, err := fr.next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Op == stays {
			break
		}
		if h.Nth != 1 || skip(fr, h.N) != nil {
			t.Fatal(h)
		}
	}
	rec.wait(t, "the other put done", func() bool { return len(rec.done[1]) == 3 })
}

// Puts that wait for a connection can be cancelled too.
func TestTCPCancelDialling(t *testing.T) {
	w, f := newTCPFake(t, nil) // the fake does not accept yet
	op := fabric.OpKey{Seq: 1}
	large := make([]byte, peerCopy+1) // smaller pieces are done at once
	w.ranks[0].Put(1, fabric.Piece{Op: op, Len: int64(len(large))}, large)
	w.ranks[0].Cancel(op)
	w.recs[0].wait(t, "put done", func() bool { return len(w.recs[0].done[1]) == 1 })
	w.ranks[0].Send(1, []byte("hello"))
	if h, err := newFrameReader(f.accept(t)).next(); err != nil || h.Kind != session.Message {
		t.Error(h, err)
	}
}

// A peer that no longer listens is lost.
func TestTCPRefusedDial(t *testing.T) {
	w, f := newTCPFake(t, func(cfg *TCPConfig, _ *tcpRec) { cfg.limits.refused = 100 * time.Millisecond })
	_ = f.l.Close()
	w.ranks[0].Put(1, fabric.Piece{Len: 1}, []byte("x"))
	if err := w.recs[0].waitLost(t, 1); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	w.recs[0].wait(t, "put done", func() bool { return len(w.recs[0].done[1]) == 1 })
}

// A peer whose kernel accepts, but whose process does not answer, is lost.
func TestTCPMute(t *testing.T) {
	w, _ := newTCPFake(t, func(cfg *TCPConfig, _ *tcpRec) { cfg.Timeout = 200 * time.Millisecond })
	w.ranks[0].Send(1, []byte("x"))
	var timeout net.Error
	if err := w.recs[0].waitLost(t, 1); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Error(err)
	}
}

// Close takes bounded time even if a peer takes nothing, or does not accept.
func TestTCPCloseBounded(t *testing.T) {
	soon := func(cfg *TCPConfig, _ *tcpRec) { cfg.limits.goodbye = 100 * time.Millisecond }
	t.Run("stalled", func(t *testing.T) {
		w, f := newTCPFake(t, soon)
		data := make([]byte, 256*session.MaxPart)
		w.ranks[0].Put(1, fabric.Piece{Len: int64(len(data))}, data)
		f.accept(t)
		if err := w.ranks[0].Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(w.recs[0].done[1]); n != 1 {
			t.Errorf("%d puts done", n)
		}
	})
	t.Run("dialling", func(t *testing.T) {
		w, _ := newTCPFake(t, soon)
		w.ranks[0].Send(1, []byte("x"))
		if err := w.ranks[0].Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A dropped peer to which this rank has no connection hears the goodbye on its own connection.
func TestTCPDropSilent(t *testing.T) {
	w := newTCPWorld(t, 2, tcpV4, nil)
	w.ranks[1].Send(0, []byte("hello"))
	w.recs[0].waitMsg(t, 1, "hello")
	w.ranks[0].Drop(1)
	if err := w.recs[1].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
		t.Error(err)
	}
}

// A verdict arrives although the dropped peer has filled its connection to this rank, which has not read
// it.
func TestTCPDropUnread(t *testing.T) {
	w := newTCPWorld(t, 2, tcpV4, func(cfg *TCPConfig, rec *tcpRec) { rec.hold = cfg.Rank == 0 })
	data := make([]byte, 128*session.MaxPart)
	w.ranks[1].Put(0, fabric.Piece{Len: int64(len(data))}, data)
	rec := w.recs[0]
	rec.wait(t, "as many parts as may be", func() bool { return len(rec.held) == peerBuffers })
	w.ranks[0].Send(1, []byte("verdict"))
	w.ranks[0].Drop(1)
	if err := w.recs[1].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
		t.Error(err)
	}
	if !slices.Contains(w.recs[1].msgs[0], "verdict") {
		t.Error("the verdict is lost")
	}
	w.recs[1].wait(t, "put done", func() bool { return len(w.recs[1].done[0]) == 1 })
}

func skip(fr *frameReader, n int) error {
	_, err := fr.skip(n)
	return err
}
