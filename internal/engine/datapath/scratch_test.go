package datapath

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// system allocates the large blocks of a scratch.
type system struct {
	t     *testing.T
	sizes []int            // requested
	inUse map[*byte][]byte // not freed yet
	err   error            // of the next request
}

func (s *system) alloc(n int) ([]byte, func() error, error) {
	s.sizes = append(s.sizes, n)
	if s.err != nil {
		return nil, nil, s.err
	}
	b := make([]byte, n)
	at := unsafe.SliceData(b)
	s.inUse[at] = b
	return b, func() error {
		if s.inUse[at] == nil {
			s.t.Error("memory is freed twice")
		}
		delete(s.inUse, at)
		return nil
	}, nil
}

// scratchTest is a test of a scratch. Its clock only moves when the test sleeps.
type scratchTest struct {
	*testing.T
	scratch
	sys system
}

func withScratch(t *testing.T, f func(x *scratchTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &scratchTest{T: t, sys: system{t: t, inUse: map[*byte][]byte{}}}
		x.alloc = x.sys.alloc
		defer x.close()
		f(x)
	})
}

// nextTurn lets the timer of a scratch go off, if it runs. The lock tells the race detector that the
// timer and the test take turns.
func (s *scratch) nextTurn() {
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // an empty section orders the two
	time.Sleep(scratchAge)
	synctest.Wait()
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // likewise
}

func same(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }

// Memory serves all sizes of its class, and no others.
func TestScratchClasses(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, s, sys := x.T, &x.scratch, &x.sys
		for _, c := range []struct{ n, size int }{
			{1, 4096},
			{4095, 4096},
			{4096, 4096},
			{4097, 8192},
			{1<<19 + 1, 1 << 20},
			{1 << 20, 1 << 20},
			{3 << 20, 4 << 20},
		} {
			b := s.get(c.n)
			if len(b) != c.n || cap(b) != c.size {
				t.Errorf("%d bytes: length %d, capacity %d; want %d", c.n, len(b), cap(b), c.size)
			}
			s.put(b)
			smallest, largest := s.get(c.size/2+1), s.get(c.size)
			if !same(b, smallest) || same(b, largest) {
				t.Errorf("%d bytes: reused for %d bytes %v, while in use %v",
					c.n, c.size/2+1, same(b, smallest), same(b, largest))
			}
			s.put(smallest)
			s.put(largest)
			if other := s.get(c.size + 1); same(other, b) || same(other, largest) || len(other) != c.size+1 {
				t.Errorf("%d bytes serve %d", c.size, len(other))
			}
		}
		if slices.ContainsFunc(sys.sizes, func(n int) bool { return n < 1<<scratchLarge }) {
			t.Errorf("the system was asked for %v: small memory is the heap's", sys.sizes)
		}
	})
}

// Large memory comes from the system, once, and from the heap if the system has none.
func TestScratchLarge(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, s, sys := x.T, &x.scratch, &x.sys
		for range 10 {
			s.put(s.get(5 << 20))
		}
		if !slices.Equal(sys.sizes, []int{8 << 20}) || len(sys.inUse) != 1 {
			t.Errorf("the system was asked for %v, and %d are in use", sys.sizes, len(sys.inUse))
		}
		sys.err = errors.New("out of memory")
		b := s.get(9 << 20)
		if len(b) != 9<<20 || len(sys.sizes) != 2 {
			t.Errorf("%d bytes; the system was asked for %v", len(b), sys.sizes)
		}
		s.put(b)
		if !same(s.get(9<<20), b) {
			t.Error("memory of the heap is not reused")
		}
		s.close()
		if len(sys.inUse) != 0 {
			t.Errorf("%d pieces were not freed", len(sys.inUse))
		}
	})
}

// Memory that was idle for two turns of the timer goes back to the system. Memory in use stays, and one
// use makes it young again.
func TestScratchAges(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, s, sys := x.T, &x.scratch, &x.sys
		const n = 1 << scratchLarge
		old, used, young := s.get(n), s.get(n), s.get(n)
		s.put(old)
		s.nextTurn()
		s.put(young)
		if s.nextTurn(); len(sys.inUse) != 2 || sys.inUse[&old[0]] != nil {
			t.Errorf("%d pieces are left, of which the oldest: %v", len(sys.inUse), sys.inUse[&old[0]] != nil)
		}
		if got := s.get(n); !same(got, young) {
			t.Error("what was idle for one turn is not reused")
		}
		s.put(young)
		if s.nextTurn(); len(sys.inUse) != 2 {
			t.Error("what was just used is freed")
		}
		if s.nextTurn(); len(sys.inUse) != 1 || sys.inUse[&used[0]] == nil {
			t.Errorf("%d pieces are left; want the one in use", len(sys.inUse))
		}
		s.nextTurn()
		if s.timer != nil {
			t.Error("nothing is idle, and the timer still runs")
		}
		s.put(used)
		s.nextTurn()
		if s.nextTurn(); len(sys.inUse) != 0 {
			t.Error("the timer does not run again")
		}
	})
}

// Close frees all idle blocks, whatever their age. Blocks in use are freed when they come back, and later
// requests get memory of the heap.
func TestScratchCloses(t *testing.T) {
	withScratch(t, func(x *scratchTest) {
		t, s, sys := x.T, &x.scratch, &x.sys
		const n = 1 << scratchLarge
		old, young, used, small := s.get(n), s.get(n), s.get(n), s.get(100)
		s.put(old)
		s.age()
		s.put(young)
		s.put(small)
		if s.close(); len(sys.inUse) != 1 || sys.inUse[&used[0]] == nil {
			t.Errorf("%d pieces are left; want the one in use", len(sys.inUse))
		}
		if s.put(used); len(sys.inUse) != 0 {
			t.Error("what came back after close was not freed")
		}
		late := s.get(n)
		if len(late) != n || len(sys.sizes) != 3 {
			t.Errorf("after close: %d bytes, %d requests to the system", len(late), len(sys.sizes))
		}
		s.put(late)
		s.put(s.get(100))
		s.age() // the timer may have gone off before close stopped it
		s.close()
		if len(sys.inUse) != 0 || s.timer != nil {
			t.Errorf("%d pieces, timer %v", len(sys.inUse), s.timer)
		}
	})
}
