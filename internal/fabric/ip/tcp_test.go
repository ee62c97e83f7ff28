package ip

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
)

// tcpFamilies are the loopback addresses.
var tcpFamilies = []netip.Addr{tcpV4, tcpV6}

// The counters of two ranks for each other agree.
func TestTCPStats(t *testing.T) {
	const ranks = 5
	w := newTCPWorld(t, ranks, tcpV4, nil)
	for r, me := range w.ranks {
		for to := range ranks {
			if to != r {
				me.Send(to, make([]byte, 100*r))
			}
		}
	}
	for _, rec := range w.recs {
		rec.wait(t, "all messages", func() bool { return len(rec.msgs) == ranks-1 })
	}
	for r, me := range w.ranks {
		if n := me.conns(); n != 2*(ranks-1) {
			t.Errorf("rank %d: %d connections", r, n)
		}
		for peer := range ranks {
			// A rank counts bytes after the kernel has taken them: the peer may have them before.
			until(t, fmt.Sprintf("ranks %d and %d count the same", r, peer), func() bool {
				s, o := me.Stats().Peers[peer], w.ranks[peer].Stats().Peers[r]
				return peer == r || s.Sent == o.Received && s.Received == o.Sent && s.Sent != 0
			})
		}
	}
}

// A rank makes only the connections that it needs.
func TestTCPLazy(t *testing.T) {
	w := newTCPWorld(t, 4, tcpV4, nil)
	w.ranks[0].Send(2, []byte("hello"))
	w.recs[2].waitMsg(t, 0, "hello")
	for r, want := range []int{1, 0, 1, 0} {
		if n := w.ranks[r].conns(); n != want {
			t.Errorf("rank %d has %d connections, want %d", r, n, want)
		}
	}
}

func TestTCPRead(t *testing.T) {
	for _, local := range tcpFamilies {
		t.Run(local.String(), func(t *testing.T) {
			w := newTCPWorld(t, 2, local, nil)
			op := fabric.OpKey{Comm: 3, Seq: 9}
			buf := tcpFill(2*session.MaxPart+100, 5)
			w.ranks[1].Register(op, buf)
			size := int64(len(buf))
			good := [][]fabric.Span{
				{{Off: 0, Len: size}},
				{{Off: 17, Len: 1}},
				{{Off: size, Len: 0}},
				{{Off: session.MaxPart, Len: session.MaxPart + 1}},
				{{Off: 0, Len: 0}},
				{
					{Off: 9, Len: 1},
					{Off: 0, Len: 3},
					{Off: size - 1, Len: 1},
					{Off: 100, Len: session.MaxPart},
					{Off: 5, Len: 0},
					{Off: 200, Len: 2},
				},
			}
			bad := [][]fabric.Span{
				{{Off: 0, Len: size + 1}},
				{{Off: size, Len: 1}},
				{{Off: size + 1, Len: 0}},
				{{Off: 1<<63 - 1 - 1<<32, Len: 1<<32 - 1}},
				{{Off: 0, Len: 1}, {Off: size, Len: 1}, {Off: 0, Len: 1}},
				{{Off: 0, Len: 1}}, // another operation
			}
			for i := range good {
				w.ranks[0].Read(1, fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: uint64(i)}, Spans: good[i]})
				r := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: uint64(100 + i)}, Spans: bad[i]}
				if i == len(good)-1 {
					r.Op.Seq++
				}
				w.ranks[0].Read(1, r)
			}
			rec := w.recs[0]
			all := 0
			for _, spans := range good {
				all += int((&fabric.ReadRequest{Spans: spans}).Len())
			}
			rec.wait(t, "answers", func() bool {
				n := 0
				for _, b := range rec.reads[1] {
					n += len(b)
				}
				return len(rec.reads[1]) == len(good) && n >= all
			})
			for i, spans := range good {
				var want []byte
				for _, s := range spans {
					want = append(want, buf[s.Off:s.Off+s.Len]...)
				}
				if got := rec.reads[1][fabric.ReadID{Op: op, ID: uint64(i)}]; !bytes.Equal(got, want) {
					t.Errorf("%v: %d bytes, not %d, or wrong ones", spans, len(got), len(want))
				}
			}
			// Answers come in order, so those to bad reads would be here before the answer to a message.
			w.ranks[0].Send(1, []byte("last"))
			w.recs[1].waitMsg(t, 0, "last")
			w.ranks[1].Send(0, []byte("last"))
			rec.waitMsg(t, 1, "last")
			if n := len(rec.reads[1]); n != len(good) {
				t.Errorf("%d reads were answered, want %d", n, len(good))
			}
		})
	}
}

// A peer may have many reads under way, a few per operation: all are answered.
func TestTCPManyReads(t *testing.T) {
	const ops = 5000
	w := newTCPWorld(t, 2, tcpV4, nil)
	buf := tcpFill(ops*fabric.MaxReads, 1)
	for seq := range uint64(ops) {
		op := fabric.OpKey{Seq: seq}
		w.ranks[1].Register(op, buf)
		for id := seq * fabric.MaxReads; id < (seq+1)*fabric.MaxReads; id++ {
			w.ranks[0].Read(1, fabric.ReadRequest{
				ReadID: fabric.ReadID{Op: op, ID: id}, Spans: []fabric.Span{{Off: int64(id), Len: 1}},
			})
		}
	}
	rec := w.recs[0]
	rec.wait(t, "all answers", func() bool { return len(rec.reads[1]) == len(buf) || len(rec.lost) > 0 })
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.lost) > 0 {
		t.Fatalf("a correct peer was lost: %v", rec.lost)
	}
	for id, got := range rec.reads[1] {
		if len(got) != 1 || got[0] != buf[id.ID] {
			t.Fatalf("read %d: %v", id.ID, got)
		}
	}
}

// A peer that has more reads of an operation under way than a correct peer is lost, since they would
// take memory without bound. The peer of this test takes no answers, so all its reads wait.
func TestTCPTooManyReads(t *testing.T) {
	w := newTCPWorld(t, 2, tcpV4, func(_ *TCPConfig, r *tcpRec) { r.hold = true })
	op := fabric.OpKey{Seq: 1}
	buf := tcpFill(64<<20, 1)
	w.ranks[1].Register(op, buf)
	for id := range uint64(2 * fabric.MaxReads) {
		w.ranks[0].Read(1, fabric.ReadRequest{
			ReadID: fabric.ReadID{Op: op, ID: id}, Spans: []fabric.Span{{Len: int64(len(buf))}},
		})
	}
	rec := w.recs[1]
	rec.wait(t, "the end", func() bool { return len(rec.lost[0]) > 0 })
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if err := rec.lost[0][0]; !errors.Is(err, session.ErrMalformed) {
		t.Errorf("lost because of %v", err)
	}
}

// After Unregister nothing reads the buffer. The race detector would report a read.
func TestTCPUnregister(t *testing.T) {
	w := newTCPWorld(t, 3, tcpV4, nil)
	buf := tcpFill(3*session.MaxPart, 1)
	for seq := range uint64(16) {
		op := fabric.OpKey{Seq: seq}
		w.ranks[0].Register(op, buf)
		for i := range uint64(4) {
			r := fabric.ReadRequest{ReadID: fabric.ReadID{Op: op, ID: i}, Spans: []fabric.Span{{Off: 0, Len: int64(len(buf))}}}
			w.ranks[1].Read(0, r)
			w.ranks[2].Read(0, r)
		}
		if seq%2 == 0 {
			rec := w.recs[1]
			rec.wait(t, "an answer", func() bool { return len(rec.reads[0]) > int(seq)/2 })
		}
		w.ranks[0].Unregister(op)
		for i := range buf {
			buf[i]++
		}
	}
}

// Handlers may call the fabric.
func TestTCPFromHandler(t *testing.T) {
	const bounces = 200
	var w *tcpWorld
	ready := make(chan struct{})
	w = newTCPWorld(t, 2, tcpV4, func(cfg *TCPConfig, rec *tcpRec) {
		me := cfg.Rank
		rec.on = func(from int, msg []byte) {
			<-ready
			if len(msg) < bounces {
				w.ranks[me].Send(from, append(msg[:len(msg):len(msg)], 'x'))
			}
		}
	})
	close(ready)
	w.ranks[0].Send(1, nil)
	rec := w.recs[bounces%2^1]
	rec.wait(t, "the last bounce", func() bool {
		m := rec.msgs[bounces%2]
		return len(m) > 0 && len(m[len(m)-1]) == bounces
	})
}

// After Close, peers still receive the queued frames, and then the goodbye.
func TestTCPCloseDelivers(t *testing.T) {
	for _, local := range tcpFamilies {
		t.Run(local.String(), func(t *testing.T) {
			w := newTCPWorld(t, 3, local, nil)
			data := tcpFill(5*session.MaxPart, 3)
			p := fabric.Piece{Nth: 1, Len: int64(len(data))}
			w.ranks[0].Send(1, []byte("first"))
			w.ranks[0].Put(1, p, data)
			w.ranks[0].Send(1, []byte("last"))
			w.ranks[2].Send(0, []byte("hello")) // rank 0 never sends to rank 2
			w.recs[0].waitMsg(t, 2, "hello")
			if err := w.ranks[0].Close(); err != nil {
				t.Fatal(err)
			}
			w.ranks[0].Send(1, []byte("too late"))
			w.ranks[0].Put(1, p, data)
			if n := len(w.recs[0].done[1]); n != 1 {
				t.Errorf("%d puts done", n)
			}
			for _, r := range []int{1, 2} {
				if err := w.recs[r].waitLost(t, 0); !errors.Is(err, fabric.ErrGoodbye) {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			if !bytes.Equal(w.recs[1].pieces[0][p], data) || w.recs[1].msgs[0][1] != "last" {
				t.Error("some queued frames did not arrive")
			}
			if len(w.recs[0].lost) != 0 {
				t.Errorf("the rank that closes lost peers: %v", w.recs[0].lost)
			}
			if err := w.ranks[0].Close(); err != nil {
				t.Fatal("second Close:", err)
			}
		})
	}
}

// A handler that keeps buffers stops their peer, and no other peer.
func TestTCPBackpressure(t *testing.T) {
	w := newTCPWorld(t, 3, tcpV4, func(_ *TCPConfig, rec *tcpRec) { rec.hold = true })
	data := tcpFill(40*session.MaxPart, 9)
	p := fabric.Piece{Len: int64(len(data))}
	w.ranks[0].Put(1, p, data)
	rec := w.recs[1]
	rec.wait(t, "as many parts as may be", func() bool { return len(rec.held) == peerBuffers })
	w.ranks[2].Send(1, []byte("hello"))
	rec.waitMsg(t, 2, "hello")
	rec.mu.Lock()
	if len(rec.held) != peerBuffers {
		t.Errorf("%d buffers are held", len(rec.held))
	}
	rec.hold = false
	held := rec.held
	rec.held = nil
	rec.mu.Unlock()
	for _, b := range held {
		b.Release()
	}
	rec.wait(t, "the piece", func() bool { return int64(len(rec.pieces[0][p])) == p.Len })
	if !bytes.Equal(rec.pieces[0][p], data) {
		t.Error("wrong bytes")
	}
}

// Close returns even if the handler never releases a buffer.
func TestTCPCloseHeld(t *testing.T) {
	w := newTCPWorld(t, 2, tcpV4, func(_ *TCPConfig, rec *tcpRec) { rec.hold = true })
	data := make([]byte, 64*session.MaxPart)
	w.ranks[0].Put(1, fabric.Piece{Len: int64(len(data))}, data)
	rec := w.recs[1]
	rec.wait(t, "as many parts as may be", func() bool { return len(rec.held) == peerBuffers })
}
