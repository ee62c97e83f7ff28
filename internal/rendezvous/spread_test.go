package rendezvous

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
)

// checkExchanges runs exchanges on all ranks. Each rank gets the blob of each other one, byte by byte.
func checkExchanges(t *testing.T, js []joined, n int) {
	t.Helper()
	for round := range n {
		var want [][]byte
		for r := range js {
			want = append(want, bytes.Repeat([]byte{byte(r), byte(round)}, 10*r+round))
		}
		var wg sync.WaitGroup
		for r, j := range js {
			wg.Go(func() {
				got, err := j.Exchange(t.Context(), want[r])
				if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("exchange %d, rank %d: %v, %v", round, r, got, err)
				}
			})
		}
		wg.Wait()
	}
}

// In a star, rank 0 sends results only to its children in the tree of results.
func TestSpread(t *testing.T) {
	for _, secure := range []bool{false, true} {
		w := newSpreadWorld(t)
		cfgs := w.configs()
		for i := range cfgs {
			cfgs[i].Key, cfgs[i].Secure = testKey(1), secure
		}
		js := w.join(cfgs...)
		for r, j := range js {
			if j.err != nil {
				t.Fatalf("rank %d: %v", r, j.err)
			}
			if b, ok := j.node.(*branch); ok && b.from.parent != testTree.parent(r) {
				t.Errorf("rank %d gets results from rank %d", r, b.from.parent)
			}
		}
		checkExchanges(t, js, 3)
		for _, j := range js {
			_ = j.Close()
		}
	}
}

// Rank 0 makes the result of a Fold, and all ranks get it.
func TestFold(t *testing.T) {
	js := newSpreadWorld(t).all()
	var wg sync.WaitGroup
	for r, j := range js {
		wg.Go(func() {
			got, err := j.Fold(t.Context(), []byte{byte(r)}, func(blobs [][]byte) []byte {
				if r != 0 {
					t.Errorf("rank %d folds", r)
				}
				return slices.Concat(blobs...)
			})
			if err != nil || !bytes.Equal(got, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
				t.Errorf("rank %d: %v, %v", r, got, err)
			}
		})
	}
	wg.Wait()
}

// A rank that leaves as soon as it has the last result does not take it away from others.
func TestSpreadLastResult(t *testing.T) {
	for first := range testSize {
		js := newSpreadWorld(t).all()
		var wg sync.WaitGroup
		for r, j := range js {
			wg.Go(func() {
				got, err := j.Exchange(t.Context(), []byte{byte(r)})
				if err != nil || len(got) != testSize {
					t.Errorf("rank %d: %v, %v", r, got, err)
				}
				if r == first || r == 0 {
					_ = j.Close()
				}
			})
		}
		wg.Wait()
		for _, j := range js {
			wg.Go(func() { _ = j.Close() })
		}
		wg.Wait()
	}
}

// A rank gets the results from rank 0 if it cannot reach its parent: if no process listens at the address, or another
// one does.
func TestSpreadUnreachable(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprint("another process listens: ", foreign), func(t *testing.T) {
			w := newSpreadWorld(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			at := l.Addr()
			if foreign {
				t.Cleanup(func() { _ = l.Close() })
				go hangUp(l)
			} else {
				_ = l.Close()
			}
			cfgs := w.configs()
			cfgs[1].offered = func(e *entry) { e.addr = netip.MustParseAddrPort(at.String()) }
			cfgs[2].offered = func(e *entry) { *e = entry{} } // it cannot listen
			js := w.join(cfgs...)
			for r, j := range js {
				if j.err != nil {
					t.Fatalf("rank %d: %v", r, j.err)
				}
				want := 0
				if r > 6 {
					want = 3
				}
				if b, ok := j.node.(*branch); ok && b.from.parent != want {
					t.Errorf("rank %d gets results from rank %d, want %d", r, b.from.parent, want)
				}
			}
			checkExchanges(t, js, 2)
		})
	}
}

// hangUp accepts connections and closes them.
func hangUp(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// A process that is not a child of the rank gets no results.
func TestSpreadStranger(t *testing.T) {
	w := newSpreadWorld(t)
	cfgs := w.configs()
	for i := range cfgs {
		cfgs[i].Key = testKey(1)
	}
	offers := make(chan entry, 1)
	cfgs[1].offered = func(e *entry) { offers <- *e }
	last := make(chan []joined, 1)
	others := w.configs()[8:]
	others[0].Key = testKey(1)
	go func() {
		e := <-offers
		for _, rank := range []int{1, 2, 5, 8} { // neither rank 3 nor 4
			c := cfgs[rank]
			c.meter = new(meter)
			s := seeker{cfg: &c, parent: 1}
			l, err := s.dial(t.Context(), e.addr.String(), e.id)
			if err != nil {
				t.Error(err)
				continue
			}
			select {
			case f := <-l.frames:
				t.Errorf("rank %d got a frame of type %d", rank, f.typ)
			case <-l.dead:
			}
			l.leave(nil)
		}
		last <- w.join(others...)
	}()
	js := append(w.join(cfgs[:8]...), <-last...)
	for r, j := range js {
		if j.err != nil {
			t.Fatalf("rank %d: %v", r, j.err)
		}
	}
	checkExchanges(t, js, 2)
}
