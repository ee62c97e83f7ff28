package engine

import "github.com/allcast/allcast/internal/fabric"

// Alloc returns memory that suits the network best.
func (e *Engine) Alloc(n int) ([]byte, error) {
	if a, ok := e.rel.(fabric.Allocator); ok {
		return a.Alloc(n)
	}
	return make([]byte, n), nil
}

// Free gives back what Alloc returned.
func (e *Engine) Free(b []byte) error {
	if a, ok := e.rel.(fabric.Allocator); ok {
		return a.Free(b)
	}
	return nil
}
