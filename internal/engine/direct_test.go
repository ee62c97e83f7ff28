package engine

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/protocol"
)

// memDirect is memReliable on a network that reads straight into place.
type memDirect struct {
	memReliable
	hold chan func() // takes what ends a read, instead of it ending; nil: it ends at once
}

func (m memDirect) ReadInto(to int, r fabric.Range, dst []byte) {
	p := m.net.ranks[to]
	p.mu.Lock()
	copy(dst, p.reg[r.Op][r.Off:r.Off+r.Len])
	p.mu.Unlock()
	done := func() { m.h.(fabric.DirectHandler).ReadPlaced(to, r, m.hold == nil) }
	if m.hold == nil {
		done()
		return
	}
	m.hold <- done
}

// directEngines starts two engines; the second one hears no multicast.
func directEngines(t *testing.T, hold chan func()) []*Engine {
	t.Helper()
	n := newMemNet(2)
	n.ranks[1].deaf.Store(true)
	var all []*Engine
	for r, m := range n.ranks {
		e, err := New(Config{Rank: r, Size: 2, Multicast: m, Secret: []byte("secret"), Reliable: func(h fabric.Handler) (fabric.Reliable, error) {
			m.h = h
			return memDirect{memReliable{m}, hold}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all
}

func TestReadIntoPlace(t *testing.T) {
	all := directEngines(t, nil)
	broadcast(t, all, 10_001)
	if s := all[1].Stats(); s.RepairedBytes != 10_001 {
		t.Errorf("%d bytes were repaired", s.RepairedBytes)
	}
}

// A call that fails ends only when no read can write to its buffer any more.
func TestFailureWaitsForReads(t *testing.T) {
	hold := make(chan func(), 100)
	all := directEngines(t, hold)
	var reqs []*Request
	for _, e := range all {
		r, err := e.Start(World, Call{Kind: protocol.Broadcast, Algo: Multicast, Recv: bytes.Repeat([]byte{1}, 1000)})
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, r)
	}
	done := <-hold // a read is under way
	if err := all[1].Abort(World); err != nil {
		t.Fatal(err)
	}
	// Its workers answer one after the other; the reads that were begun remain.
	for waiting, reads := 2, 1; waiting > reads; runtime.Gosched() {
		if !all[1].do(func() {
			op := all[1].failing[fabric.OpKey{Comm: World}]
			if op == nil {
				waiting = 0
				return
			}
			waiting, reads = op.waiting, op.placing
		}) {
			t.Fatal("stopped")
		}
		if waiting == 0 {
			t.Fatal("the call has ended while a read may write to its buffer")
		}
	}
	for done(); ; {
		select {
		case done := <-hold:
			done()
			continue
		case <-reqs[1].Done():
		}
		break
	}
	if reqs[1].Err() == nil {
		t.Error("it did not fail")
	}
}

// What cannot be registered cannot be used: the call fails everywhere.
func TestRegisterFails(t *testing.T) {
	hold := make(chan func(), 100) // so that it cannot complete before
	all := directEngines(t, hold)
	var reqs []*Request
	for _, e := range all {
		r, err := e.Start(World, Call{Kind: protocol.Broadcast, Algo: Multicast, Recv: make([]byte, 1000)})
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, r)
	}
	(*handler)(all[0]).RegisterFailed(fabric.OpKey{Comm: World}, fabric.ErrClosed)
	for _, r := range reqs {
		for ended := false; !ended; {
			select {
			case done := <-hold:
				done()
			case <-r.Done():
				ended = true
			}
		}
		if r.Err() == nil {
			t.Error("it did not fail")
		}
	}
}
