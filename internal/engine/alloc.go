package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
)

// Errors of Free.
var (
	ErrNotAlloced = errors.New("not from Alloc")
	ErrInUse      = errors.New("an operation that has not ended uses it")
)

// A block is memory of Alloc.
type block struct {
	start, end uintptr
	users      int // calls that have not ended
	free       func() error
}

// blocks are all memory of Alloc, by address.
type blocks struct {
	mu   sync.Mutex
	list []*block
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// add remembers memory that Alloc returns.
func (s *blocks) add(b []byte, free func() error) {
	x := &block{start: address(b), end: address(b) + uintptr(len(b)), free: free}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := s.search(x.start)
	s.list = slices.Insert(s.list, i, x)
}

// search finds the first block that ends behind an address, and reports whether the address is in
// it. s.mu is held.
func (s *blocks) search(at uintptr) (i int, found bool) {
	i, _ = slices.BinarySearchFunc(s.list, at, func(x *block, at uintptr) int {
		if x.end > at {
			return 1
		}
		return -1
	})
	return i, i < len(s.list) && s.list[i].start <= at
}

// use notes that a call uses memory, until unuse.
func (s *blocks) use(bufs ...[]byte) (used []*block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if i, found := s.search(address(b)); found {
			s.list[i].users++
			used = append(used, s.list[i])
		}
	}
	return used
}

func (s *blocks) unuse(used []*block) {
	if len(used) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range used {
		x.users--
	}
}

// take forgets the block that begins where b does, so that it can be freed.
func (s *blocks) take(b []byte) (*block, error) {
	at := address(b[:cap(b)])
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.search(at)
	switch {
	case !found || s.list[i].start != at:
		return nil, ErrNotAlloced
	case s.list[i].users > 0:
		return nil, ErrInUse
	}
	x := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	return x, nil
}

// Alloc returns cleared memory outside of Go's heap, which whoever receives writes
// directly. It stays until Free, also beyond Close.
func (e *Engine) Alloc(n int) ([]byte, error) {
	switch {
	case n < 0:
		return nil, fmt.Errorf("%w: %d bytes", ErrCall, n)
	case e.closing.Load():
		return nil, ErrClosed
	case n == 0:
		return []byte{}, nil
	}
	b, free, err := e.alloc(n)
	if err != nil {
		return nil, err
	}
	e.blocks.add(b, free)
	return b, nil
}

// alloc returns memory that suits the fabric best, and how to free it.
func (e *Engine) alloc(n int) (b []byte, free func() error, err error) {
	if a := e.caps.Allocator; a != nil {
		return allocFrom(a, n)
	}
	return e.allocPlain(n)
}

func allocFrom(a fabric.Allocator, n int) (b []byte, free func() error, err error) {
	if b, err = a.Alloc(n); err != nil {
		return nil, nil, err
	}
	return b, func() error { return a.Free(b) }, nil
}

// allocPlain is alloc for memory that no chunk is received in.
func (e *Engine) allocPlain(n int) (b []byte, free func() error, err error) {
	if a := e.rel.Allocator; a != nil {
		return allocFrom(a, n)
	}
	mem, err := mapMemory(n)
	if err != nil {
		return nil, nil, fmt.Errorf("memory of %d bytes: %w", n, err)
	}
	return mem[:n:n], func() error { return unmapMemory(mem) }, nil
}

// Free gives back what Alloc returned. The caller does not use it any more.
func (e *Engine) Free(buf []byte) error {
	if cap(buf) == 0 {
		return nil
	}
	x, err := e.blocks.take(buf)
	if err != nil {
		return err
	}
	return x.free()
}
