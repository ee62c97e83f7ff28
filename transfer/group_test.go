package transfer

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// fakePeers returns a sender with receivers whose connections are closed.
func fakePeers(t *testing.T, n int) *sender {
	t.Helper()
	s := &sender{m: smallManifest(t), total: 2, started: true, lag: 4}
	s.cond = sync.NewCond(&s.mu)
	for range n {
		near, far := net.Pipe()
		_, _ = near.Close(), far.Close()
		s.peers = append(s.peers, &peer{c: newControl(near, time.Second), state: stateReady, gone: make(chan struct{})})
	}
	t.Cleanup(s.byes.Wait)
	return s
}

// Only receivers that fail alone are given up, wherever they are in the group.
func TestIsolate(t *testing.T) {
	broken := errors.New("broken")
	for _, bad := range [][]int{{0}, {6}, {2, 3}, {0, 4, 6}, {0, 1, 2, 3, 4, 5, 6}} {
		s := fakePeers(t, 7)
		culprit := map[*peer]bool{}
		for _, i := range bad {
			culprit[s.peers[i]] = true
		}
		fails := func(members []*peer) error {
			if slices.ContainsFunc(members, func(p *peer) bool { return culprit[p] }) {
				return broken
			}
			return nil
		}
		s.isolate(t.Context(), slices.Clone(s.peers), broken, fails)
		for i, p := range s.peers {
			if (p.state == stateLost) != culprit[p] || !culprit[p] && p.strikes > 0 {
				t.Errorf("bad receivers %v: receiver %d is in state %d, with %d strikes", bad, i, p.state, p.strikes)
			}
		}
	}
	// A group that never works, although its parts do, ends as well.
	s := fakePeers(t, 3)
	for range maxStrikes {
		s.isolate(t.Context(), slices.Clone(s.peers), broken, func([]*peer) error { return nil })
	}
	for i, p := range s.peers {
		if p.state != stateLost {
			t.Errorf("receiver %d is in state %d", i, p.state)
		}
	}
}

// Failures count across restarts of a receiver, until it stores something.
func TestStrikes(t *testing.T) {
	s := fakePeers(t, 1)
	old := s.peers[0]
	s.strike(old, ErrLost)
	again := &peer{c: old.c, state: stateReady, gone: make(chan struct{})}
	if why := s.admit(again); why != "" || again.strikes != 1 {
		t.Errorf("%q, %d strikes", why, again.strikes)
	}
	again.pending.set(0)
	if err := s.stored(again, message{Segment: 0}); err != nil || again.strikes != 0 {
		t.Errorf("%v, %d strikes", err, again.strikes)
	}
	for range maxStrikes {
		s.strike(again, ErrLost)
	}
	if again.state != stateLost {
		t.Errorf("state %d", again.state)
	}
	if why := s.admit(&peer{c: old.c}); why == "" {
		t.Error("it is admitted again")
	}
}

// A group does not wait for a member that is lost before it forms, and is not to blame for a member that is lost.
func TestLostBeforeForm(t *testing.T) {
	s := fakePeers(t, 2)
	s.peers[0].state = stateLost
	if g, err := s.form(t.Context(), s.peers); err == nil || s.groups > 0 {
		t.Errorf("%v, %v", g, err)
	}
	s.findCulprits(t.Context(), s.peers, ErrLost)
	if s.peers[1].strikes > 0 {
		t.Error("the other one is to blame")
	}
}

// A probe broadcasts to real receivers what they discard.
func TestProbe(t *testing.T) {
	data := random(faultSize, 3)
	dst := t.TempDir()
	s, err := newSender(SendOptions{
		Paths: []string{write(t, data, t.TempDir(), "file")}, To: 2, Segment: faultSegment, Timeout: testTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.wg.Go(func() { s.accept(ctx) })
	b := &testbed{addr: s.ln.Addr().String()}
	wait := others(t, b, 2, dst, data)
	if err := s.waitStart(ctx); err != nil {
		t.Fatal(err)
	}
	for _, members := range [][]*peer{s.peers, s.peers[1:]} {
		if err := s.probe(ctx, members); err != nil {
			t.Error(err)
		}
	}
	err = s.end(ctx, s.conduct(ctx))
	wait()
	if err != nil {
		t.Error(err)
	}
	_ = s.ln.Close()
	s.byes.Wait()
	cancel()
	s.wg.Wait()
}

// A group whose members all lag waits for one of them.
func TestAllLag(t *testing.T) {
	s := fakePeers(t, 1)
	p := s.peers[0]
	p.lagging, p.pendingN = true, s.lag
	g := &group{members: s.peers}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.credit(ctx, g, 0) {
		t.Error("credit after the end")
	}
	done := make(chan bool)
	go func() { done <- s.credit(t.Context(), g, 0) }()
	s.mu.Lock()
	p.pendingN = 0
	s.cond.Broadcast()
	s.mu.Unlock()
	if !<-done || p.lagging {
		t.Error("no credit, or still lagging")
	}
}

// A receiver has time to store a segment from when it has arrived, however long its broadcast took.
func TestStallClock(t *testing.T) {
	s := fakePeers(t, 1)
	s.o.StallTimeout = time.Minute
	p := s.peers[0]
	p.pendingN, p.flying = 1, 1
	late := time.Now().Add(time.Hour)
	if s.stalled(p, late) {
		t.Error("a broadcast that is under way counts")
	}
	s.landed(flight{to: s.peers})
	if s.stalled(p, p.moved.Add(59*time.Second)) || !s.stalled(p, p.moved.Add(time.Minute)) {
		t.Error("the clock does not start when the broadcast lands")
	}
	p.pendingN = 0
	if s.stalled(p, late) {
		t.Error("a receiver that waits for data counts")
	}
}

// The time for retries begins again after a connection that was of use.
func TestRetryClock(t *testing.T) {
	r := &receiver{o: ReceiveOptions{Timeout: time.Minute}}
	if r.worked(0, time.Second) || !r.worked(0, time.Hour) {
		t.Error("the duration does not count")
	}
	r.received.Store(1)
	if !r.worked(0, 0) || r.worked(1, 0) {
		t.Error("the data does not count")
	}
}

// Staged files that already have their final mode are writable again, and files with a second name are replaced.
func TestStagedFiles(t *testing.T) {
	dst := t.TempDir()
	d, err := openDir(dst, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	m := smallManifest(t)
	d.fresh = false
	staged := filepath.Join(dst, stagingDir, stageName("file"))
	if err := errors.Join(os.WriteFile(staged, random(int(m.size), 1), 0o600), os.Chmod(staged, 0o444)); err != nil {
		t.Fatal(err)
	}
	if claims, err := d.prepare(m); err != nil || len(claims) != 2 {
		t.Errorf("%v, %v", claims, err)
	}
	if info, err := os.Stat(staged); err != nil || info.Mode().Perm() != 0o600 && runtime.GOOS != "windows" {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if runtime.GOOS == "windows" {
		return // it cannot tell how many names a file has
	}
	victim := write(t, random(int(m.size), 2), dst, "victim")
	link := func() {
		if err := errors.Join(os.Remove(staged), os.Link(victim, staged)); err != nil {
			t.Fatal(err)
		}
	}
	link()
	f, err := d.open(&m.entries[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("overwritten"), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Error(err)
	}
	link()
	d.fresh = false
	if claims, err := d.prepare(m); err != nil || len(claims) != 0 {
		t.Errorf("%v, %v", claims, err)
	}
	wantSame(t, victim, random(int(m.size), 2))
}

// A staging directory to which others can write is refused.
func TestStagingDirOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dst := t.TempDir()
	name := filepath.Join(dst, stagingDir)
	if err := errors.Join(os.Mkdir(name, 0o700), os.Chmod(name, 0o777)); err != nil {
		t.Fatal(err)
	}
	if d, err := openDir(dst, false); !errors.Is(err, ErrInput) {
		t.Errorf("%v, %v", d, err)
	}
}

// A sender whose pipe is idle ends when it is interrupted, and when its last receiver is lost. Segments before that
// arrive.
func TestIdlePipe(t *testing.T) {
	for _, interrupt := range []bool{true, false} {
		r, w := io.Pipe()
		sending, stopSending := context.WithCancel(t.Context())
		receiving, stopReceiving := context.WithCancel(t.Context())
		b := serve(sending, t, SendOptions{Stdin: r, Segment: faultSegment, Timeout: testTimeout})
		arrived := make(chan struct{})
		ch := b.receive(receiving, ReceiveOptions{Dir: t.TempDir(), Retry: -1, Events: func(e Event) {
			if e.Event == EventProgress {
				close(arrived)
			}
		}})
		if _, err := w.Write(random(faultSegment, 1)); err != nil {
			t.Fatal(err)
		}
		<-arrived
		if interrupt {
			stopSending()
		} else {
			stopReceiving()
		}
		if s := <-b.sent; s.err == nil {
			t.Error("the sender: no error")
		}
		if r := <-ch; r.err == nil {
			t.Error("the receiver: no error")
		}
		_ = w.Close() // ends the goroutine that reads
		stopSending()
		stopReceiving()
	}
}
