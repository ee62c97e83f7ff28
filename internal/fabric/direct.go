package fabric

// DirectReader is a Reliable that reads peers' memory without the peers' help, straight to
// where it belongs. Where it is offered, it takes the place of Read.
type DirectReader interface {
	// ReadInto reads a range of the peer's registered buffer into dst, which is part of
	// the buffer that is registered here for the same operation. DirectHandler.ReadPlaced
	// ends it, always; before that, dst may be written to. Reliable.Cancel sees that it
	// ends soon.
	ReadInto(to int, r Range, dst []byte)
}

// DirectHandler is what a DirectReader needs of its Handler.
type DirectHandler interface {
	// ReadPlaced says that a ReadInto has ended: dst is not touched any more, and holds what
	// was asked for if ok. A read that the peer refuses is not.
	ReadPlaced(from int, r Range, ok bool)
	// RegisterFailed says that Reliable.Register could not be done: nothing can be read or
	// sent for the operation.
	RegisterFailed(op OpKey, err error)
}

// Allocator is a Reliable with memory that suits it best, such as memory that its device
// knows already.
type Allocator interface {
	Alloc(n int) ([]byte, error)
	Free(b []byte) error
}

// CommMulticast is a Multicast that keeps communicators apart in the network: each has
// groups of its own, so that ranks do not receive what is not for them.
type CommMulticast interface {
	// AddComm joins a communicator's groups; its name is the same on all its ranks. After
	// an error what is sent to it here goes to the job's groups.
	AddComm(id uint32, name string) error
	RemoveComm(id uint32)
}
