package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Scanners, browsers and silent connections neither enter nor keep ranks out.
func TestStrangers(t *testing.T) {
	for _, key := range [][]byte{nil, testKey(1)} {
		w := newWorld(t, 4)
		cfgs := w.configs()
		for i := range cfgs {
			cfgs[i].Key = key
		}
		// More connections than the gate keeps are in the backlog before rank 0 accepts any.
		var conns []net.Conn
		for i := range maxStrangers + len(cfgs) + 20 {
			conn, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
			p := newPreamble(key, false, incarnation{})
			junk := [][]byte{
				nil,
				[]byte("GET / HTTP/1.1\r\nHost: allcast.example.org\r\nAccept: */*\r\n\r\n"),
				[]byte("\x16\x03\x01"),
				p[:],
				append(append(p[:], make([]byte, proofSize)...), "\xff\xff\xff\xff\xff\xff\xff\xff"...),
			}[i%5]
			if _, err := conn.Write(junk); err != nil {
				t.Fatal(err)
			}
			if i%7 == 0 {
				_ = conn.Close()
			}
		}
		js := w.join(cfgs...)
		for i, j := range js {
			if j.err != nil {
				t.Fatalf("rank %d: %v", i, j.err)
			}
		}
		for i, err := range exchange(t.Context(), js) {
			if err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		}
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// A rank whose key is wrong or missing gets an error. The job goes on. If it needs that rank, its error says
// why the rank is missing.
func TestKeys(t *testing.T) {
	good := testKey(1)
	for _, c := range []struct {
		name       string
		root, rank []byte
	}{
		{"wrong", good, testKey(2)},
		{"missing", good, nil},
		{"one too many", nil, good},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2)
			expired := make(chan time.Time)
			w.root.Key, w.root.expired = c.root, expired
			root := make(chan error, 1)
			go func() {
				_, err := Join(t.Context(), w.root)
				root <- err
			}()
			cfg := w.config(1, 2)
			cfg.Key = c.rank
			if _, err := Join(t.Context(), cfg); !errors.Is(err, ErrKey) {
				t.Error("rank:", err)
			}
			// Rank 0 may still be reading the answer: the second one comes after it.
			conn, err := net.Dial("tcp", w.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := authChild(conn, c.rank, false, 0, incarnation{}); !errors.Is(err, ErrKey) {
				t.Error("rank:", err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil {
				t.Log("closed by reset:", err) // only that it is closed matters
			}
			expired <- time.Time{}
			err = <-root
			if !errors.Is(err, ErrKey) || !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "missing: 1; ") {
				t.Error("root:", err)
			}
		})
	}
}

// Something else that listens at rank 0's address is named as such.
func TestNotRankZero(t *testing.T) {
	w := newWorld(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := w.root.Listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example.org ESMTP, and a few words more to make it long enough\r\n"))
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
			cancel() // the rank has dialed often enough
		}
	})
	_, err := Join(ctx, w.config(1, 2))
	_ = w.root.Listener.Close()
	wg.Wait()
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not rank 0 of a job") {
		t.Error(err)
	}
}
