package inc

// A SessionConfig describes a job to one of its aggregators.
type SessionConfig struct {
	Tree   *Tree
	Node   int // index of this aggregator
	Window uint32
	Chunk  int                                            // largest payload in bytes
	Token  func(comm uint32, number uint32) uint64        // token of an operation
	Add    func(dst, src []byte, typ, reduce uint8) error // adds src to dst; fails for types that it does not know
	Comms  int                                            // limit of communicators with slots at a time
}

// A Session is one job at one aggregator. Its methods must not be called concurrently.
type Session struct{ cfg SessionConfig }

// NewSession returns a Session without slots.
func NewSession(cfg SessionConfig) *Session { panic("TODO") }

// A Forward is a datagram that an aggregator sends: a contribution to its parent, or a result to the owner.
type Forward struct {
	Header
	Payload []byte // valid until the next call of Contribute
	ToOwner bool   // otherwise to the parent
}

// Contribute handles a contribution. It returns a datagram to send if ok.
func (s *Session) Contribute(h *Header, payload []byte) (f Forward, ok bool) { panic("TODO") }

// SessionStats counts what a Session received and sent.
type SessionStats struct {
	Contributions, Duplicates, Stale, Forged, Malformed uint64
	Sums, Repeated                                      uint64 // sent for the first time, and again
}

// Stats returns the counters.
func (s *Session) Stats() SessionStats { panic("TODO") }

// Memory returns the bytes that slots occupy.
func (s *Session) Memory() int64 { panic("TODO") }

// MaxMemory returns an upper bound of Memory for a configuration.
func (c *SessionConfig) MaxMemory() int64 { panic("TODO") }
