// Package fabric is the contract between the engine and a network.
//
// A network has two sides. Multicast is the unreliable side (UD): it multicasts datagrams that carry
// a 32-bit immediate. Reliable is the reliable side (RC): it carries ordered messages and data
// between two ranks, and one-sided reads of registered buffers.
//
// Optional features are fields of Capabilities and Reliable. Each is a small interface, nil where
// the network lacks the feature. The engine queries them once, when it starts.
package fabric

import (
	"errors"
	"fmt"
)

// Errors that callers compare with errors.Is.
var (
	ErrBusy    = errors.New("the network has no room now")
	ErrClosed  = errors.New("fabric closed")
	ErrGoodbye = errors.New("the peer has left")
	// ErrQueueFull is an ErrBusy: the queue of this machine's own interface has dropped what was sent.
	ErrQueueFull = fmt.Errorf("%w: the queue of the interface is full", ErrBusy)
)

// An Allocator provides memory that suits the network best, such as memory that a device has
// registered already. The memory stays valid until Free, even after the network is closed.
type Allocator interface {
	Alloc(n int) ([]byte, error)
	Free(b []byte) error
}

// A Buffer is memory of the fabric that holds received bytes until it is released.
type Buffer struct {
	B    []byte
	Free func(*Buffer) // nil: the garbage collector frees it
}

// Release gives the buffer back.
func (b *Buffer) Release() {
	if b.Free != nil {
		b.Free(b)
	}
}
