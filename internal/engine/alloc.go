package engine

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/allcast/allcast/internal/fabric"
)

// ErrNotAlloced is what Free says of other memory.
var ErrNotAlloced = errors.New("not from Alloc")

// Alloc returns cleared memory outside of Go's heap, which whoever receives writes
// directly. It stays until Free, also beyond Close.
func (e *Engine) Alloc(n int) ([]byte, error) {
	if n < 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrCall, n)
	}
	if n == 0 {
		return []byte{}, nil
	}
	if p := e.cfg.Placer; p != nil {
		return p.Alloc(n)
	}
	if a, ok := e.rel.(fabric.Allocator); ok {
		return a.Alloc(n)
	}
	mem, err := mapMemory(n)
	if err != nil {
		return nil, fmt.Errorf("memory of %d bytes: %w", n, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.given == nil {
		e.given = map[*byte][]byte{}
	}
	e.given[unsafe.SliceData(mem)] = mem
	return mem[:n:n], nil
}

// Free gives back what Alloc returned. No operation uses it, nor does the caller any more.
func (e *Engine) Free(buf []byte) error {
	if cap(buf) == 0 {
		return nil
	}
	if p := e.cfg.Placer; p != nil {
		if !p.Free(buf) {
			return ErrNotAlloced
		}
		return nil
	}
	if a, ok := e.rel.(fabric.Allocator); ok {
		return a.Free(buf)
	}
	at := unsafe.SliceData(buf[:cap(buf)])
	e.mu.Lock()
	mem, ok := e.given[at]
	delete(e.given, at)
	e.mu.Unlock()
	if !ok {
		return ErrNotAlloced
	}
	return unmapMemory(mem)
}
