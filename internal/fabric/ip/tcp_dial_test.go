package ip

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A peer that is slow to answer is not lost, however long the handshake takes in all. One that answers nothing is.
func TestPatience(t *testing.T) {
	const limit = 30 * time.Second
	dialler := authSelf{rank: 0, size: 2, secret: tcpSecret}
	acceptor := authSelf{rank: 1, size: 2, secret: tcpSecret}
	connect := func(signs func() uint64, serve func(c net.Conn)) (answered bool, took time.Duration, err error) {
		near, far := net.Pipe()
		defer func() { _, _ = near.Close(), far.Close() }()
		go serve(far)
		begin := time.Now()
		c := &patientConn{Conn: near, ctx: context.Background(), limit: limit, signs: signs}
		_, err = dialler.dial(c, 1)
		return c.answered, time.Since(begin), err
	}
	silent := func() uint64 { return 0 }
	slow := func(pause time.Duration) func(net.Conn) {
		return func(c net.Conn) {
			time.Sleep(pause)
			if _, _, err := acceptor.accept(c); err != nil {
				return
			}
			time.Sleep(pause)
			_ = authSend(c, uint8(authOK))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		// The pipe buffers nothing, so the slow peer takes the hello late; a socket takes it at once.
		if _, took, err := connect(silent, slow(limit-time.Second)); err != nil || took < limit {
			t.Errorf("a slow peer: %v after %v", err, took)
		}
		began := time.Now()
		others := func() uint64 { return uint64(time.Since(began) / (20 * time.Second)) }
		if _, took, err := connect(others, slow(5*limit)); err != nil || took < 9*limit {
			t.Errorf("a peer that sends messages on another connection: %v after %v", err, took)
		}
		mute := func(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }
		answered, took, err := connect(silent, mute)
		if !errors.Is(err, os.ErrDeadlineExceeded) || answered || took != limit {
			t.Errorf("a mute peer: %v after %v, answered: %v", err, took, answered)
		}
	})
}

// A rank opens few connections at a time, and peers that do not answer do not hold up the others.
func TestTurns(t *testing.T) {
	for name, hold := range map[string]time.Duration{"prompt": time.Millisecond, "mute": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const conns = 10 * tcpAtOnce
				turns := make(tcpTurns, tcpAtOnce)
				began := time.Now()
				starts := make(chan time.Duration, conns)
				for range conns {
					go func() {
						end, err := turns.take(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						defer end()
						starts <- time.Since(began)
						time.Sleep(hold)
					}()
				}
				for i := range conns {
					if at := time.Duration(i/tcpAtOnce) * min(hold, tcpDialTurn); <-starts != at {
						t.Errorf("connection %d began at another time than %v", i, at)
					}
				}
				time.Sleep(2 * hold)
				if len(turns) != 0 {
					t.Errorf("%d turns have not ended", len(turns))
				}
			})
		})
	}
}

// Whoever waits for a turn stops waiting when the connection is not wanted any more.
func TestTurnsCancelled(t *testing.T) {
	turns := make(tcpTurns, 1)
	end, err := turns.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.take(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	end()
}

// A handshake whose last step is late does not cost the peer its life: here the rank takes longer than its own limit to
// admit the connection.
func TestTCPLateAdmission(t *testing.T) {
	const limit = 200 * time.Millisecond
	w, f := newTCPFake(t, func(cfg *TCPConfig, _ *tcpRec) {
		if cfg.Rank == 0 {
			cfg.Timeout = limit
		}
	})
	p := w.ranks[0].peers[1]
	for {
		p.mu.Lock()
		release := time.AfterFunc(2*limit, p.mu.Unlock) // the handshake's deadline passes meanwhile
		c, err := net.Dial("tcp", w.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.self.dial(c, 0); err == nil {
			defer func() { _ = c.Close() }()
			if release.Stop() {
				t.Fatal("the rank admitted a connection while it was held up")
			}
			break
		}
		// On a busy machine, the handshake itself was too slow. The rank must not have admitted it then.
		_ = c.Close()
		if release.Stop() {
			p.mu.Unlock()
		}
		w.recs[0].mu.Lock()
		lost := w.recs[0].lost[1]
		w.recs[0].mu.Unlock()
		if len(lost) > 0 {
			t.Fatal("the peer is lost: ", lost[0])
		}
	}
}
