package datapath

import (
	"math/bits"
	"sync"
	"time"
)

// scratch is memory for sums that pass through this rank. It is kept for the next reduction, and given
// back to the system when no reduction has used it for a while.
type scratch struct {
	// alloc maps large blocks, and returns how to free them. On Go's heap, they would make the garbage
	// collector run more often.
	alloc func(n int) ([]byte, func() error, error)

	mu    sync.Mutex
	idle  [2][bits.UintSize + 1][][]byte // by age and by the logarithm of the size
	frees map[uintptr]func() error       // of large blocks, by address
	timer *time.Timer                    // runs while a block is idle
	ended bool
}

const (
	scratchMin   = 12 // logarithm of the smallest size
	scratchLarge = 20 // logarithm of the smallest large size
	scratchAge   = 10 * time.Second
)

// get returns n bytes of any content.
func (s *scratch) get(n int) []byte {
	class := max(bits.Len(uint(n-1)), scratchMin)
	s.mu.Lock()
	defer s.mu.Unlock()
	for age := range s.idle {
		if list := &s.idle[age][class]; len(*list) > 0 {
			b := (*list)[len(*list)-1]
			*list = (*list)[:len(*list)-1]
			return b[:n]
		}
	}
	if class >= scratchLarge && s.alloc != nil && !s.ended {
		if b, free, err := s.alloc(1 << class); err == nil { // otherwise the heap may still have memory
			if s.frees == nil {
				s.frees = map[uintptr]func() error{}
			}
			s.frees[Address(b)] = free
			return b[:n]
		}
	}
	return make([]byte, n, 1<<class)
}

// put gives back the memory of get.
func (s *scratch) put(b []byte) {
	b = b[:cap(b)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		s.free(b)
		return
	}
	class := bits.Len(uint(len(b) - 1))
	s.idle[0][class] = append(s.idle[0][class], b)
	if s.timer == nil {
		s.timer = time.AfterFunc(scratchAge, s.age)
	}
}

// age frees the blocks that were idle for two turns.
func (s *scratch) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(1)
	kept := false
	for class, list := range s.idle[0] {
		kept = kept || len(list) > 0
		s.idle[1][class], s.idle[0][class] = list, nil
	}
	if kept && !s.ended {
		s.timer.Reset(scratchAge)
	} else {
		s.timer = nil
	}
}

// drop frees the idle blocks of one age. The caller holds s.mu.
func (s *scratch) drop(age int) {
	for class, list := range s.idle[age] {
		for _, b := range list {
			s.free(b)
		}
		s.idle[age][class] = nil
	}
}

// free gives a large block back to the system. The caller holds s.mu.
func (s *scratch) free(b []byte) {
	if free := s.frees[Address(b)]; free != nil {
		delete(s.frees, Address(b))
		_ = free() // it is mapped
	}
}

// close frees all idle blocks. Blocks in use are freed when they come back.
func (s *scratch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.drop(0)
	s.drop(1)
}
