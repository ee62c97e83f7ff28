package rendezvous

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// tap is a proxy of an eavesdropper. It records the bytes of both directions.
type tap struct {
	l    net.Listener
	wg   sync.WaitGroup
	mu   sync.Mutex
	seen []byte
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{l: l}
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.wg.Go(func() { p.pass(in, out) })
			p.wg.Go(func() { p.pass(out, in) })
		}
	})
	return p
}

func (p *tap) pass(from, to net.Conn) {
	_, _ = io.Copy(to, io.TeeReader(from, p))
	closeWrite(to)
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, b...)
	return len(b), nil
}

// all returns the recorded bytes, once both sides have ended.
func (p *tap) all() []byte {
	_ = p.l.Close()
	p.wg.Wait()
	return p.seen
}

// secured is a job of two ranks that meet through a tap; rank 1's tap is rank 0's port.
func secured(t *testing.T, secure bool) (js []joined, p *tap) {
	t.Helper()
	w := newWorld(t, 2)
	cfgs := w.configs()
	p = newTap(t, w.addr)
	for i := range cfgs {
		cfgs[i].Key, cfgs[i].Secure = testKey(1), secure
	}
	cfgs[1].Addr = p.l.Addr().String()
	js = w.join(cfgs...)
	for i, j := range js {
		if j.err != nil {
			t.Fatalf("rank %d: %v", i, j.err)
		}
	}
	return js, p
}

// An eavesdropper learns neither the seed nor the blobs of ranks.
func TestSealed(t *testing.T) {
	for _, secure := range []bool{true, false} {
		js, p := secured(t, secure)
		card := bytes.Repeat([]byte("a card with addresses "), 100)
		var wg sync.WaitGroup
		for i, j := range js {
			wg.Go(func() {
				all, err := j.Exchange(t.Context(), card)
				if err != nil || len(all) != 2 || !bytes.Equal(all[1-i], card) {
					t.Errorf("rank %d: %q, %v", i, all, err)
				}
			})
		}
		wg.Wait()
		seed := js[0].Seed()
		if seed != js[1].Seed() {
			t.Error("the seeds differ")
		}
		for _, j := range js {
			wg.Go(func() { _ = j.Close() })
		}
		wg.Wait()
		seen := p.all()
		if len(seen) < 3*len(card) {
			t.Fatalf("only %d bytes were seen", len(seen))
		}
		// Without sealing the tap must see both; otherwise the test proves nothing.
		if bytes.Contains(seen, seed[:]) == secure || bytes.Contains(seen, card[:16]) == secure {
			t.Errorf("secure %v: seed seen: %v, card seen: %v", secure, bytes.Contains(seen, seed[:]),
				bytes.Contains(seen, card[:16]))
		}
	}
}

// If ranks disagree on sealing, all of them get an error that says so.
func TestSomeSeal(t *testing.T) {
	for _, c := range []struct{ root, rank1, rank2 bool }{
		{true, false, true}, {false, true, false}, {true, true, false}, {false, false, true},
	} {
		w := newWorld(t, 3)
		cfgs := w.configs()
		for i, s := range []bool{c.root, c.rank1, c.rank2} {
			cfgs[i].Key, cfgs[i].Secure = testKey(1), s
		}
		for i, j := range w.join(cfgs...) {
			if !errors.Is(j.err, ErrSecure) || !strings.Contains(j.err.Error(), "ALLCAST_SECURE") {
				t.Errorf("%+v: rank %d: %v", c, i, j.err)
			}
		}
	}
}

// A rank that seals accepts no seed in the clear, even if an attacker pretends that rank 0 does not seal.
func TestNoSeedInTheClear(t *testing.T) {
	w := newWorld(t, 2)
	cfg := w.config(1, 2)
	cfg.Key, cfg.Secure = testKey(1), true
	done := make(chan error, 1)
	go func() {
		conn, err := w.root.Listener.Accept()
		if err == nil {
			defer func() { _ = conn.Close() }()
			// A peer that has the key but ignores the mismatch.
			if _, err = authParent(conn, testKey(1), false, incarnation{}); err == nil {
				_, err = readFrame(conn, helloLimits)
			}
			if err == nil {
				_, err = conn.Write(welcomeFrame(newSeed(), entry{}))
			}
			_, _ = io.Copy(io.Discard, conn)
		}
		done <- err
	}()
	if _, err := Join(t.Context(), cfg); !errors.Is(err, ErrProtocol) {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
