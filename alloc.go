package allcast

import (
	"errors"
	"fmt"

	"github.com/allcast/allcast/internal/engine"
)

// Alloc returns n bytes of cleared memory for buffers, outside of Go's heap, that suits the
// network best. On InfiniBand and RoCE the card knows it already, so that operations need not
// register it each time. With the bpf datapath (Options.Datapath) the kernel puts what is
// received straight into it, while what is received in other memory is copied once. Elsewhere its
// pages are there before the first operation needs them. All communicators of the job can use it
// until Free, and it stays valid after Close. The kernel's memory comes in pieces of 1 MiB, and
// there can be at most 256 such buffers: better a few large ones than many small ones.
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

// Free gives memory of Alloc back, all of it: buf begins where Alloc's began. The caller must not touch
// it any more. While an operation of this process uses the memory and has not returned, Free returns
// ErrInUse, and the memory stays.
func (c *Comm) Free(buf []byte) error {
	if c == nil {
		return invalid("a nil communicator")
	}
	switch err := c.job.Free(buf); {
	case errors.Is(err, engine.ErrInUse):
		return fmt.Errorf("allcast: free: %w: wait for the operation first", ErrInUse)
	case errors.Is(err, engine.ErrNotAlloced):
		return fmt.Errorf("allcast: free: %w: pass each result of Alloc once", ErrNotAlloced)
	case err != nil:
		return fmt.Errorf("allcast: free: %w", err)
	}
	return nil
}
