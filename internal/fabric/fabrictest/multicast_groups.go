package fabrictest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// Datagrams of a communicator with groups of its own reach its members only.
func testGroups(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 3)
	c := all[0].Capabilities()
	if c.Groups == nil {
		return // all communicators share the job's groups
	}
	const own, shared = 77, 1
	data := fill(c.Chunk, 1)
	for round := range 3 {
		name := fmt.Sprintf("comm %d", round)
		for _, m := range all[:2] {
			if err := m.Capabilities().Groups.AddComm(own, name); err != nil {
				t.Fatal(err)
			}
		}
		send(t, all[0].Sender(0), own, data, c.Chunk, 1, []uint32{0})
		s := newSink(c.Chunk, 1)
		receive(t, all[1].Receiver(0), s, func() bool { return s.got == 1 })
		send(t, all[0].Sender(0), shared, data, c.Chunk, 1, []uint32{0})
		for _, m := range all[1:] {
			s := newSink(c.Chunk, 1)
			receive(t, m.Receiver(0), s, func() bool { return s.got == 1 })
			if s.heads[0].Comm != shared {
				t.Errorf("a rank outside of the communicator got %+v", s.heads[0])
			}
		}
		for _, m := range all[:2] {
			m.Capabilities().Groups.RemoveComm(own)
		}
		// The job's groups carry the communicator again.
		send(t, all[0].Sender(0), own, data, c.Chunk, 1, []uint32{0})
		for _, m := range all[1:] {
			s := newSink(c.Chunk, 1)
			receive(t, m.Receiver(0), s, func() bool { return s.got == 1 })
		}
	}
}

// Communicators that overlap have groups apart from each other, in all subgroups. A rank that is in two of
// them receives both, and removing one leaves the other intact.
func testSeveralGroups(t *testing.T, n Network) {
	t.Helper()
	all := n.Multicast(t, 4)
	c := all[0].Capabilities()
	if c.Groups == nil {
		return // all communicators share the job's groups
	}
	members := map[uint32][]int{7: {0, 1}, 8: {0, 2}, 9: {2, 3}}
	add := func(id uint32) {
		for _, r := range members[id] {
			if err := all[r].Capabilities().Groups.AddComm(id, fmt.Sprint(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id := range members {
		add(id)
	}
	// check sends one datagram per communicator and one to the job. Each rank must receive those of its
	// own communicators, and the job's as the last one.
	check := func(shared uint32) {
		t.Helper()
		const job = 1
		for stream := range all[0].Streams() {
			for id, ranks := range members {
				send(t, all[ranks[1]].Sender(stream), id, fill(c.Chunk, byte(id)), c.Chunk, 1, []uint32{0})
			}
			for r, m := range all {
				want := map[uint32]bool{}
				for id, ranks := range members {
					if ranks[1] != r && (ranks[0] == r || id == shared) {
						want[id] = true
					}
				}
				send(t, all[(r+1)%len(all)].Sender(stream), job+uint32(r), fill(c.Chunk, 1), c.Chunk, 1, []uint32{0})
				s := &commSink{sink: newSink(c.Chunk, 1), comms: map[uint32]int{}}
				receiveComms(t, m.Receiver(stream), s, job+uint32(r))
				for id := range members {
					if got := s.comms[id] == 1; got != want[id] || s.comms[id] > 1 {
						t.Errorf("stream %d: rank %d got %d datagrams of communicator %d", stream, r, s.comms[id], id)
					}
				}
			}
		}
	}
	check(0)
	for _, r := range members[8] {
		all[r].Capabilities().Groups.RemoveComm(8)
		all[r].Capabilities().Groups.RemoveComm(8) // no effect
	}
	check(8)
	add(8)
	check(0)
}

// commSink counts datagrams by communicator.
type commSink struct {
	*sink
	comms map[uint32]int
}

func (s *commSink) Chunk(h wire.Header, payload []byte) {
	s.comms[h.Comm]++
	s.sink.Chunk(h, payload)
}

// receiveComms receives until a datagram of the communicator last has come.
func receiveComms(t *testing.T, rx fabric.Receiver, s *commSink, last uint32) {
	t.Helper()
	late := time.AfterFunc(waitLimit, rx.Wake)
	defer late.Stop()
	for begin := time.Now(); s.comms[last] == 0; {
		if err := rx.Receive(s); err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) > waitLimit {
			t.Fatalf("the datagram of communicator %d is missing", last)
		}
	}
}

// Communicators may come and go while the network is closed, without an effect.
func testGroupsAfterClose(t *testing.T, n Network) {
	t.Helper()
	m := n.Multicast(t, 1)[0]
	g := m.Capabilities().Groups
	if g == nil {
		return // all communicators share the job's groups
	}
	if err := g.AddComm(7, "7"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for id := range uint32(10) {
		wg.Go(func() {
			_ = g.AddComm(10+id, fmt.Sprint(10+id)) // may fail while the network closes
			g.RemoveComm(10 + id)
		})
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	g.RemoveComm(7)
	if err := g.AddComm(8, "8"); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
