package transfer

import (
	"bytes"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
)

// Receivers that need segments in order are at different positions, and one that does not misses others. Every group
// makes progress, and no receiver gets a segment before its turn.
func TestOrderedReceiversAtDifferentPositions(t *testing.T) {
	const total = 10
	s := &sender{total: total}
	for i, have := range [][]int{{0, 1, 2, 3, 4}, {0, 1}, {}, {1, 7}, {0, 1}} {
		p := &peer{state: stateReady, ordered: i != 3}
		for _, seg := range have {
			p.have.set(seg)
		}
		s.peers = append(s.peers, p)
	}
	for range len(s.peers) * total {
		members := s.largest()
		if members == nil {
			break
		}
		g := &group{members: members}
		seg, ok := s.nextFor(g, 0)
		if !ok {
			t.Fatalf("no segment for a group of %d", len(members))
		}
		for ; ok; seg, ok = s.nextFor(g, seg+1) {
			if s.skips(g, seg) {
				t.Fatalf("segment %d comes too early", seg)
			}
			for _, p := range members {
				p.have.set(seg)
			}
		}
	}
	for i, p := range s.peers {
		if p.have.count() != total {
			t.Errorf("receiver %d has %d of %d segments", i, p.have.count(), total)
		}
	}
}

// A group does not continue after a segment that one of its members needs in order, and others miss as well.
func TestOrderedReceiverIsNotSkipped(t *testing.T) {
	o, late := &peer{state: stateReady, ordered: true}, &peer{state: stateReady}
	late.have.set(0)
	late.have.set(2)
	s := &sender{total: 3, peers: []*peer{o, late}}
	g := &group{members: []*peer{o}}
	if seg, ok := s.nextFor(g, 1); ok {
		t.Errorf("segment %d, want none: both miss 1", seg)
	}
	o.have.set(2) // 0 was lost
	if !s.skips(g, 1) || s.skips(g, 0) {
		t.Error("a lost segment is not sent first")
	}
}

// Two receivers write to standard output, and the second one comes in the middle.
func TestLateStdout(t *testing.T) {
	data := random(faultSize, 3)
	joined := make(chan struct{})
	var ready atomic.Int32
	b := serve(t.Context(), t, SendOptions{
		Paths: []string{write(t, data, t.TempDir(), "file")}, Segment: faultSegment, MaxLag: faultSegment,
		Timeout: testTimeout,
		Events: func(e Event) {
			if e.Event == EventReceiver && ready.Add(1) == 2 {
				close(joined)
			}
		},
	})
	half := make(chan struct{})
	var outs [2]bytes.Buffer
	first := b.receive(t.Context(), withFault(ReceiveOptions{Stdout: &outs[0]}, func(n int) error {
		if n == faultSegments/2 {
			close(half)
			<-joined
		}
		return nil
	}))
	<-half
	late := b.receive(t.Context(), ReceiveOptions{Stdout: &outs[1]})
	for i, ch := range []<-chan recvResult{first, late} {
		if r := <-ch; r.err != nil || !bytes.Equal(outs[i].Bytes(), data) {
			t.Errorf("receiver %d: %v, %d of %d bytes", i, r.err, outs[i].Len(), len(data))
		}
	}
	if s := <-b.sent; s.err != nil {
		t.Error(s.err)
	}
}

// A directory that has nothing but claims is not complete because the sender says so.
func TestDirChecksFiles(t *testing.T) {
	d, err := openDir(filepath.Join(t.TempDir(), "d"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	m := smallManifest(t)
	if _, err := d.prepare(m); err != nil {
		t.Fatal(err)
	}
	if err := d.accept(nil); err != nil {
		t.Fatal(err)
	}
	if err := d.write(0, random(minSegment, 1), hash{}); err != nil {
		t.Fatal(err)
	}
	if err := d.finish(m.size); err == nil {
		t.Error("no error, although a segment is missing")
	}
	if names, err := filepath.Glob(filepath.Join(d.root.Name(), "file")); err != nil || !slices.Equal(names, nil) {
		t.Errorf("%v, %v", names, err)
	}
}
