package fabric

// DirectReader is a Reliable that reads peers' memory without the peers' help, straight to
// where it belongs. Where it is offered, it takes the place of Read.
type DirectReader interface {
	// ReadInto reads parts of the peer's registered buffer to the same offsets of buf, which is
	// the buffer that is registered here for the same operation. DirectHandler.ReadPlaced
	// ends it, always; before that, those parts of buf may be written to. Reliable.Cancel makes
	// it end soon. It copies r.Spans.
	ReadInto(to int, r ReadRequest, buf []byte)
}

// DirectHandler is what a DirectReader needs of its Handler.
type DirectHandler interface {
	// ReadPlaced says that a ReadInto has ended: the buffer is no longer touched, and holds what
	// was asked for if ok. A read that the peer refuses is not ok.
	ReadPlaced(from int, id ReadID, ok bool)
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
	// AddComm joins a communicator's groups, which may take long; its name is the same on all
	// its ranks. After an error, what is sent to it here goes to the job's groups.
	AddComm(id uint32, name string) error
	// RemoveComm leaves them: from now on, the communicator's datagrams go to the job's groups. It
	// may run while Close does.
	RemoveComm(id uint32)
}
