package ip

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/fabric/session"
	"github.com/allcast/allcast/internal/seal"
)

// tcpProtect runs a test with protected connections.
func tcpProtect(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, p := range []protection{protectSums, protectSeal} {
		t.Run(string(p[2:]), func(t *testing.T) {
			tcpProtected = p
			t.Cleanup(func() { tcpProtected = protectNothing })
			f(t)
		})
	}
}

// Protected connections do what plain ones do, beyond what TestTCPConformance checks.
func TestTCPProtected(t *testing.T) {
	tcpProtect(t, func(t *testing.T) {
		t.Helper()
		t.Run("read", TestTCPRead)
		t.Run("unregister", TestTCPUnregister)
		t.Run("from handler", TestTCPFromHandler)
		t.Run("close delivers", TestTCPCloseDelivers)
		t.Run("backpressure", TestTCPBackpressure)
		t.Run("drop silent", TestTCPDropSilent)
		t.Run("drop unread", TestTCPDropUnread)
	})
}

// Ranks that protect their connections in different ways do not connect.
func TestTCPDifferentProtection(t *testing.T) {
	self := func(rank int, p protection) authSelf {
		return authSelf{rank: rank, size: 2, secret: tcpSecret, protection: p}
	}
	all := []protection{protectNothing, protectSums, protectSeal}
	for _, d := range all {
		for _, a := range all {
			_, de, ae := authRun(self(0, d), self(1, a), 1)
			if (d == a) != (de == nil && ae == nil) {
				t.Errorf("%q to %q: %v, %v", d, a, de, ae)
			}
		}
	}
}

// tcpMeddler forwards between rank 0, which dials, and rank 1. It records all bytes, and changes bytes
// of rank 0 after a call of set.
type tcpMeddler struct {
	l      *net.TCPListener
	wg     sync.WaitGroup
	mu     sync.Mutex
	seen   []byte
	held   []byte
	size   int
	change func([]byte) []byte
}

func newTCPMeddler(t *testing.T) (*tcpWorld, *tcpMeddler) {
	t.Helper()
	l, err := Listen(tcpV4)
	if err != nil {
		t.Fatal(err)
	}
	m := &tcpMeddler{l: l}
	t.Cleanup(func() { _ = l.Close(); m.wg.Wait() })
	w := newTCPWorld(t, 2, tcpV4, func(cfg *TCPConfig, _ *tcpRec) {
		if cfg.Rank == 0 {
			cfg.Addrs = slices.Clone(cfg.Addrs)
			cfg.Addrs[1] = l.Addr().String()
		}
	})
	m.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", w.addrs[1])
			if err != nil {
				_ = in.Close()
				continue
			}
			m.wg.Go(func() { m.pass(in, out, m.meddle) })
			m.wg.Go(func() { m.pass(out, in, bytes.Clone) })
		}
	})
	return w, m
}

func (m *tcpMeddler) pass(from, to net.Conn, f func([]byte) []byte) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b := make([]byte, 1<<20)
	for {
		n, err := from.Read(b)
		if err == nil {
			_, err = to.Write(f(b[:n]))
		}
		if err != nil {
			return
		}
	}
}

// meddle forwards bytes. It collects the bytes to change first, and then forwards them at once.
func (m *tcpMeddler) meddle(b []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, b...)
	if m.change == nil {
		return b
	}
	if m.held = append(m.held, b...); len(m.held) < m.size {
		return nil
	}
	return m.change(m.held)
}

// set makes the meddler change the next size bytes.
func (m *tcpMeddler) set(size int, f func([]byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size, m.change = size, f
}

// Records that were changed, repeated, moved or left out on the way are not delivered. The rank of the
// connection is lost, with an error that names the reason.
func TestTCPMeddled(t *testing.T) {
	const messages = 3
	for _, c := range []struct {
		what  string
		good  int // messages before the change
		three func(b [][]byte) []byte
	}{
		{"a bit", 1, func(b [][]byte) []byte { b[1][len(b[1])/2] ^= 4; return slices.Concat(b...) }},
		{"the last", 2, func(b [][]byte) []byte { b[2][len(b[2])-1] ^= 1; return slices.Concat(b...) }},
		{"twice", 1, func(b [][]byte) []byte { return slices.Concat(b[0], b[0], b[1]) }},
		{"left out", 0, func(b [][]byte) []byte { return slices.Concat(b[1], b[2]) }},
		{"moved", 0, func(b [][]byte) []byte { return slices.Concat(b[1], b[0], b[2]) }},
	} {
		t.Run(c.what, func(t *testing.T) {
			tcpProtect(t, func(t *testing.T) {
				t.Helper()
				w, m := newTCPMeddler(t)
				w.ranks[0].Send(1, []byte("good"))
				w.recs[1].waitMsg(t, 0, "good")
				size := len(seal.Checked().Append(nil, make([]byte, session.StreamPrefix+4)))
				if tcpProtected == protectSeal {
					size += seal.TagSize - 4
				}
				m.set(messages*size, func(b []byte) []byte {
					return c.three(slices.Collect(slices.Chunk(b[:messages*size], size)))
				})
				for range messages { // one by one, since together they would be one record
					w.ranks[0].Send(1, []byte("more"))
					w.ranks[0].Flush(tcpPatience)
				}
				if err := w.recs[1].waitLost(t, 0); !errors.Is(err, seal.ErrRecord) {
					t.Error(err)
				}
				w.recs[1].mu.Lock()
				defer w.recs[1].mu.Unlock()
				if n := len(w.recs[1].msgs[0]); n != 1+c.good {
					t.Errorf("%q was delivered", w.recs[1].msgs[0])
				}
			})
		})
	}
}

// An attacker who sniffs a sealed connection sees no plaintext. A connection with checksums shows that
// the test would detect plaintext.
func TestTCPSealed(t *testing.T) {
	tcpProtect(t, func(t *testing.T) {
		t.Helper()
		w, m := newTCPMeddler(t)
		text := bytes.Repeat([]byte("known plaintext "), 20_000)
		w.ranks[0].Send(1, text[:1000])
		w.ranks[0].Put(1, fabric.Piece{Nth: 1, Len: 5000}, text[:5000])
		w.ranks[0].Put(1, fabric.Piece{Nth: 2, Len: int64(len(text))}, text)
		rec := w.recs[1]
		rec.wait(t, "all", func() bool { return len(rec.pieces[0]) == 2 && len(rec.order[0]) == 3 })
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.seen) < len(text)+6000 {
			t.Fatalf("only %d bytes were seen", len(m.seen))
		}
		if seen := bytes.Contains(m.seen, text[:16]); seen != (tcpProtected == protectSums) {
			t.Errorf("%q: plaintext seen: %v", tcpProtected, seen)
		}
	})
}

// Reading frames from a peer's records ends, whatever the records contain.
func FuzzProtectedFrames(f *testing.F) {
	b := (&session.Frame{Kind: session.Message, N: 5}).AppendStream(nil)
	f.Add(append(b, "hello"...), 3)
	f.Add((&session.Frame{Kind: session.Goodbye}).AppendStream(nil), 1)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		m := seal.NewMaster(tcpSecret, nil)
		out, wire := m.Direction("x"), []byte(nil)
		for rest := text; len(rest) > 0; {
			n := min(max(1, cut), len(rest))
			wire, rest = out.Append(wire, rest[:n]), rest[n:]
		}
		plain := newFrameReader(bytes.NewReader(text))
		sealed := newFrameReader(seal.NewReader(m.Direction("x"), bytes.NewReader(wire)))
		for {
			a, aerr := plain.next()
			b, berr := sealed.next()
			if a != b || (aerr == nil) != (berr == nil) {
				t.Fatalf("%+v, %v in the clear; %+v, %v sealed", a, aerr, b, berr)
			}
			if aerr != nil {
				return
			}
			_, aerr = io.CopyN(io.Discard, plain.br, int64(a.N))
			_, berr = io.CopyN(io.Discard, sealed.br, int64(b.N))
			if (aerr == nil) != (berr == nil) {
				t.Fatal(aerr, berr)
			}
			if aerr != nil {
				return
			}
		}
	})
}
