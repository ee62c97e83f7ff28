package allcast

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/engine"
)

// Alloc returns n zeroed bytes outside Go's heap, for use as buffers. All communicators of the job can use
// the memory. It stays valid until Free, even after Close.
//
// On InfiniBand and RoCE the memory is already registered with the card, so operations do not have to
// register it. With the bpf datapath (Options.Datapath) the kernel writes received data directly to it;
// data for other memory is copied once. Elsewhere its pages are mapped in advance.
//
// The bpf datapath allocates in units of 1 MiB and supports at most 256 buffers: allocate few large
// buffers instead of many small ones.
func (c *Comm) Alloc(n int) ([]byte, error) {
	switch {
	case c == nil || n < 0:
		return nil, invalid("Alloc of %d bytes", n)
	case c.closed.Load():
		return nil, exportError(engine.ErrClosed, nil)
	}
	b, err := c.job.Alloc(n)
	return b, exportError(err, nil)
}

// Free releases all memory of one Alloc. buf must begin where the result of Alloc began. The caller must not
// use the memory afterwards. While an unfinished operation of this process uses the memory, Free returns
// ErrInUse and releases nothing.
func (c *Comm) Free(buf []byte) error {
	if c == nil {
		return invalid("a nil communicator")
	}
	switch err := c.job.Free(buf); {
	case errors.Is(err, engine.ErrInUse):
		return fmt.Errorf("allcast: free: %w: wait for the operation before Free", ErrInUse)
	case errors.Is(err, engine.ErrNotAlloced):
		return fmt.Errorf("allcast: free: %w: free each result of Alloc exactly once", ErrNotAlloced)
	case err != nil:
		return fmt.Errorf("allcast: free: %w", err)
	}
	return nil
}
