package control

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// memDirect is memReliable on a network that reads straight into place.
type memDirect struct {
	memReliable
	hold chan func() // takes the function that ends a read; nil: reads end at once
}

func (m memDirect) ReadInto(to int, r fabric.ReadRequest, buf []byte) {
	p := m.net.ranks[to]
	p.mu.Lock()
	for _, s := range r.Spans {
		copy(buf[s.Off:], p.reg[r.Op][s.Off:s.Off+s.Len])
	}
	p.mu.Unlock()
	done := func() { m.h.ReadIntoDone(to, r.ReadID, m.hold == nil) }
	if m.hold == nil {
		done()
		return
	}
	m.hold <- done
}

// directEngines starts two engines; the second one hears no multicast.
func directEngines(t *testing.T, hold chan func()) []*engine {
	t.Helper()
	n := newMemNet(2)
	n.ranks[1].deaf.Store(true)
	var all []*engine
	for r, m := range n.ranks {
		connect := func(h fabric.Handler) (fabric.Reliable, error) {
			m.h = h
			rel := reliable(memReliable{m})
			rel.Reader, rel.Direct = nil, memDirect{memReliable{m}, hold}
			return rel, nil
		}
		e, err := newEngine(Config{
			Config: process(r, 2), Multicast: m, Secret: []byte("secret"), Reliable: connect,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all
}

func TestReadIntoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := directEngines(t, nil)
		broadcast(t, all, 10_001)
		if s := all[1].Stats(); s.RepairedBytes != 10_001 {
			t.Errorf("%d bytes were repaired", s.RepairedBytes)
		}
	})
}

// A call that fails ends only when no read can write to its buffer any more.
func TestFailureWaitsForReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan func(), 100)
		all := directEngines(t, hold)
		var reqs []*Request
		for _, e := range all {
			r, err := e.Start(World, Call{Kind: wire.Broadcast, Algo: Multicast, Recv: bytes.Repeat([]byte{1}, 1000)})
			if err != nil {
				t.Fatal(err)
			}
			reqs = append(reqs, r)
		}
		done := <-hold // a read is under way
		if err := all[1].Abort(World); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // All workers have answered by now. Only the reads that had begun remain.
		if reqs[1].Over() {
			t.Fatal("the call has ended while a read may write to its buffer")
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
	})
}

// memLate is memReliable on a network that registers memory when the test says so.
type memLate struct {
	memReliable
	begun chan fabric.OpKey
}

func (m memLate) Register(op fabric.OpKey, buf []byte) bool {
	m.memReliable.Register(op, buf)
	m.begun <- op
	return false
}

// lateEngines starts two engines whose first one registers memory when the test says so.
func lateEngines(t *testing.T) ([]*engine, chan fabric.OpKey) {
	t.Helper()
	n := newMemNet(2)
	begun := make(chan fabric.OpKey, 10)
	var all []*engine
	for r, m := range n.ranks {
		connect := func(h fabric.Handler) (fabric.Reliable, error) {
			if m.h = h; r == 0 {
				return reliable(memLate{memReliable{m}, begun}), nil
			}
			return reliable(memReliable{m}), nil
		}
		e, err := newEngine(Config{
			Config: process(r, 2), Multicast: m, Secret: []byte("secret"), Reliable: connect,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		all = append(all, e)
	}
	return all, begun
}

func startBroadcasts(t *testing.T, all []*engine, bufs [][]byte) (reqs []*Request) {
	t.Helper()
	for r, e := range all {
		req, err := e.Start(World, Call{Kind: wire.Broadcast, Algo: Multicast, Recv: bufs[r]})
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, req)
	}
	return reqs
}

// A rank enters the barrier of an operation when its buffer is registered, and not before. It keeps the
// messages that arrive meanwhile.
func TestRegistersLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, begun := lateEngines(t)
		bufs := [][]byte{bytes.Repeat([]byte{7}, 1000), make([]byte, 1000)}
		reqs := startBroadcasts(t, all, bufs)
		key := <-begun
		synctest.Wait()
		for _, e := range all {
			if e.Stats().McastChunks > 0 {
				t.Error("somebody sent before all were ready")
			}
		}
		all[0].data.Registered(key, nil)
		for r, req := range reqs {
			if <-req.Done(); req.Err() != nil || !bytes.Equal(bufs[r], bufs[0]) {
				t.Errorf("rank %d: %v", r, req.Err())
			}
		}
	})
}

// Memory that cannot be registered cannot be used: the call fails everywhere.
func TestRegisterFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, begun := lateEngines(t)
		reqs := startBroadcasts(t, all, [][]byte{make([]byte, 1000), make([]byte, 1000)})
		all[0].data.Registered(<-begun, fabric.ErrClosed)
		for _, r := range reqs {
			if <-r.Done(); r.Err() == nil {
				t.Error("it did not fail")
			}
		}
	})
}

// An operation that fails during the registration of its memory ends after the registration.
func TestFailsWhileItRegisters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, begun := lateEngines(t)
		reqs := startBroadcasts(t, all, [][]byte{make([]byte, 1000), make([]byte, 1000)})
		key := <-begun
		if err := all[1].Abort(World); err != nil {
			t.Fatal(err)
		}
		<-reqs[1].Done()
		synctest.Wait() // all workers have answered by now
		if reqs[0].Over() {
			t.Error("it has ended while the network may use its memory")
		}
		all[0].data.Registered(key, nil)
		if <-reqs[0].Done(); reqs[0].Err() == nil {
			t.Error("it did not fail")
		}
	})
}
