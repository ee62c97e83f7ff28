package inc

import "math/bits"

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
type Session struct {
	cfg      SessionConfig
	children int
	words    int     // of a slot's set of children
	absent   []int32 // by owner: child that does not contribute, or -1
	position uint16  // of this aggregator among its parent's children
	top      bool
	comms    map[uint32]*channel
	last     *channel // of the last valid datagram
	clock    uint64   // number of valid datagrams, with those that found no room
	free     *buffer  // unused buffers
	freed    int      // number of unused buffers
	buffers  int      // number of all buffers
	stats    SessionStats
}

// A channel holds the slots of one communicator.
type channel struct {
	comm   uint32
	number uint32 // of its newest operation
	token  uint64 // of that operation
	used   uint64 // clock at its last valid datagram
	open   uint32 // number of incomplete slots of that operation
	slots  []slot
	seen   []uint64  // sets of children of all slots
	early  []*buffer // by slot and child: contributions whose turn has not come
}

// A slot collects the contributions to one chunk.
type slot struct {
	number, place uint32
	length        uint32
	owner         uint16
	typ, reduce   uint8
	try           uint8 // highest of all contributions
	sent          uint8 // try of the last forward
	used          bool  // whether a chunk has taken the slot
	complete      bool
	next          int // child whose turn it is
	sum           *buffer
}

// A buffer holds a chunk.
type buffer struct {
	data []byte
	next *buffer // in the list of unused buffers
}

// NewSession returns a Session without slots.
func NewSession(cfg SessionConfig) *Session {
	cfg.Window, cfg.Comms = max(1, cfg.Window), max(1, cfg.Comms)
	n := &cfg.Tree.Nodes[cfg.Node]
	s := &Session{
		cfg: cfg, children: len(n.Children), words: cfg.words(), absent: cfg.Tree.absents(cfg.Node),
		top: n.Parent < 0, comms: make(map[uint32]*channel),
	}
	if !s.top {
		s.position = uint16(cfg.Tree.Position(cfg.Node))
	}
	return s
}

// A Forward is a datagram that an aggregator sends: a contribution to its parent, a result to the owner, or a Want to
// the child of the header.
type Forward struct {
	Header
	Payload []byte // valid until the next call of Contribute, and only as long as that call's payload
}

// Contribute handles a contribution or an offer. It returns a datagram to send if ok.
func (s *Session) Contribute(h *Header, payload []byte) (f Forward, ok bool) {
	c := s.find(h.Comm)
	if !s.authentic(c, h) {
		s.stats.Forged++
		return f, false
	}
	if !s.valid(h, payload) {
		s.stats.Malformed++
		return f, false
	}
	if c = s.renew(c, h); c == nil {
		return f, false
	}
	i := h.Place % s.cfg.Window
	x := &c.slots[i]
	if h.Kind == Offer {
		return s.offered(c, i, h)
	}
	switch {
	case !x.used || x.number != h.Number || x.place < h.Place:
		s.open(c, i, h, len(payload))
	case x.place != h.Place:
		s.stats.Stale++
		return f, false
	case x.owner != h.Owner || x.typ != h.Type || x.reduce != h.Reduce || int(x.length) != len(payload):
		s.stats.Malformed++
		return f, false
	}
	return s.add(c, i, h, payload)
}

// offered handles an offer, which stands for a contribution that comes again. If the aggregator has it, it is a
// duplicate. Otherwise the rank is asked to send it.
func (s *Session) offered(c *channel, i uint32, h *Header) (f Forward, ok bool) {
	s.stats.Offers++
	switch x := &c.slots[i]; {
	case x.used && x.number == h.Number && x.place > h.Place:
		s.stats.Stale++
		return f, false
	case !x.used || x.number != h.Number || x.place != h.Place, c.set(s, i)[h.Child/64]>>(h.Child%64)&1 == 0:
	case x.owner != h.Owner || x.typ != h.Type || x.reduce != h.Reduce:
		s.stats.Malformed++
		return f, false
	case !x.complete || h.Try <= x.sent:
		x.try = max(x.try, h.Try)
		return f, false
	case s.expected(h.Owner) > 1:
		return s.add(c, i, h, nil)
	}
	s.stats.Wanted++
	f = Forward{Header: *h}
	f.Kind = Want
	return f, true
}

// find returns the channel of a communicator, or nil.
func (s *Session) find(comm uint32) *channel {
	if s.last != nil && s.last.comm == comm {
		return s.last
	}
	return s.comms[comm]
}

// authentic reports whether a rank or aggregator of this job sent the datagram.
func (s *Session) authentic(c *channel, h *Header) bool {
	if c != nil && c.number == h.Number {
		return c.token == h.Token
	}
	return s.cfg.Token(h.Comm, h.Number) == h.Token
}

// valid reports whether the datagram fits the tree.
func (s *Session) valid(h *Header, payload []byte) bool {
	return (h.Kind == Contribution && len(payload) > 0 || h.Kind == Offer && len(payload) == 0) &&
		int(h.Child) < s.children && int(h.Owner) < len(s.absent) && s.absent[h.Owner] != int32(h.Child) &&
		len(payload) <= s.cfg.Chunk
}

// renew returns the channel of an authentic datagram, or nil if its operation has ended or there is no room for its
// communicator. A newer operation takes all slots of an older one.
func (s *Session) renew(c *channel, h *Header) *channel {
	switch {
	case c == nil:
		if c = s.channel(); c == nil {
			s.clock++
			s.stats.Crowded++
			return nil
		}
		c.comm, c.number, c.token = h.Comm, h.Number, h.Token
		s.comms[h.Comm] = c
	case c.number == h.Number:
	case int32(h.Number-c.number) > 0:
		c.number, c.token, c.open = h.Number, h.Token, 0
	default:
		s.stats.Stale++
		return nil
	}
	s.clock++
	c.used, s.last = s.clock, c
	return c
}

// A communicator loses its slots to another one if it has not sent for this many datagrams per child: few if all its
// slots are complete, because a retry rebuilds them, and otherwise for several windows.
const (
	idleComplete = 1
	idleWindows  = 4
)

// channel returns a channel without contributions, or nil if there are too many and all are in use. Otherwise more
// communicators than Comms would take the slots from each other, and none would ever get a sum.
func (s *Session) channel() *channel {
	if len(s.comms) < s.cfg.Comms {
		w := int(s.cfg.Window)
		return &channel{slots: make([]slot, w), seen: make([]uint64, w*s.words), early: make([]*buffer, w*s.children)}
	}
	var idle *channel
	for _, c := range s.comms {
		limit := uint64(idleComplete * s.children)
		if c.open > 0 {
			limit = idleWindows * uint64(s.cfg.Window) * uint64(s.children)
		}
		if s.clock-c.used >= limit && (idle == nil || c.used < idle.used) {
			idle = c
		}
	}
	if idle == nil {
		return nil
	}
	delete(s.comms, idle.comm)
	s.stats.Evicted++
	for i := range idle.slots {
		s.clear(idle, uint32(i))
		s.release(idle.slots[i].sum)
		idle.slots[i] = slot{}
	}
	idle.open = 0
	if s.last == idle {
		s.last = nil
	}
	return idle
}

// clear removes the contributions to a slot that are not part of its sum.
func (s *Session) clear(c *channel, i uint32) {
	x := &c.slots[i]
	if x.used && !x.complete {
		for k, b := range c.waiting(s, i) {
			s.release(b)
			c.waiting(s, i)[k] = nil
		}
	}
	clear(c.set(s, i))
}

// set returns the set of children that contributed to a slot.
func (c *channel) set(s *Session, i uint32) []uint64 { return c.seen[int(i)*s.words:][:s.words] }

// waiting returns the contributions to a slot whose turn has not come.
func (c *channel) waiting(s *Session, i uint32) []*buffer {
	return c.early[int(i)*s.children:][:s.children]
}

// open gives a slot to a new chunk.
func (s *Session) open(c *channel, i uint32, h *Header, length int) {
	s.clear(c, i)
	x := &c.slots[i]
	if !x.used || x.complete || x.number != h.Number {
		c.open++
	}
	*x = slot{
		number: h.Number, place: h.Place, length: uint32(length), owner: h.Owner, typ: h.Type, reduce: h.Reduce,
		used: true, sum: x.sum,
	}
	x.next = s.after(h.Owner, 0)
}

// after returns the first child that contributes to owner's block, from child on.
func (s *Session) after(owner uint16, child int) int {
	if int32(child) == s.absent[owner] {
		child++
	}
	return child
}

// expected returns how many children contribute to owner's block.
func (s *Session) expected(owner uint16) int {
	if s.absent[owner] >= 0 {
		return s.children - 1
	}
	return s.children
}

// add handles a contribution to an open slot.
func (s *Session) add(c *channel, i uint32, h *Header, payload []byte) (f Forward, ok bool) {
	x, seen := &c.slots[i], c.set(s, i)
	word, bit := &seen[h.Child/64], uint64(1)<<(h.Child%64)
	repeated := *word&bit != 0
	x.try = max(x.try, h.Try)
	switch {
	case repeated:
		s.stats.Duplicates++
		if !x.complete || h.Try <= x.sent {
			return f, false
		}
		s.stats.Repeated++
	case s.expected(h.Owner) == 1:
		s.stats.Contributions++
		*word |= bit
		x.complete = true
		c.open--
		s.stats.Sums++
	default:
		if int(h.Child) == x.next {
			if !s.fold(x, payload) {
				return f, false
			}
			*word |= bit
			s.drain(c, i)
		} else {
			b := s.take()
			copy(b.data, payload)
			c.waiting(s, i)[h.Child] = b
			*word |= bit
		}
		s.stats.Contributions++
		if x.next < s.children {
			return f, false
		}
		x.complete = true
		c.open--
		s.stats.Sums++
	}
	x.sent = x.try
	if s.expected(h.Owner) > 1 {
		payload = x.sum.data[:x.length]
	}
	return s.forward(x, h, payload), true
}

// fold adds the contribution of the child whose turn it is. It fails if the type or operator is unknown.
func (s *Session) fold(x *slot, payload []byte) bool {
	if x.next == s.after(x.owner, 0) {
		if x.sum == nil {
			x.sum = s.take()
		}
		copy(x.sum.data, payload)
	} else if s.cfg.Add(x.sum.data[:x.length], payload, x.typ, x.reduce) != nil {
		s.stats.Malformed++
		return false
	}
	x.next = s.after(x.owner, x.next+1)
	return true
}

// drain adds the early contributions whose turn has come.
func (s *Session) drain(c *channel, i uint32) {
	x, waiting := &c.slots[i], c.waiting(s, i)
	for x.next < s.children && waiting[x.next] != nil {
		child := x.next
		s.fold(x, waiting[child].data[:x.length]) // if it fails, it fails for all: there will be no sum
		s.release(waiting[child])
		waiting[child] = nil
	}
}

// forward returns the datagram that carries a sum.
func (s *Session) forward(x *slot, h *Header, payload []byte) Forward {
	f := Forward{Header: *h, Payload: payload}
	f.Kind, f.Child, f.Try = Contribution, s.position, x.sent
	if s.top {
		f.Kind = Result
	}
	return f
}

// take returns a buffer.
func (s *Session) take() *buffer {
	b := s.free
	if b == nil {
		s.buffers++
		return &buffer{data: make([]byte, s.cfg.Chunk)}
	}
	s.free, b.next = b.next, nil
	s.freed--
	return b
}

// release gives a buffer back. The Session keeps as many unused ones as one communicator can need.
func (s *Session) release(b *buffer) {
	switch {
	case b == nil:
	case s.freed >= int(s.cfg.Window)*s.children:
		s.buffers--
	default:
		s.free, b.next = b, s.free
		s.freed++
	}
}

// SessionStats counts what a Session received and sent.
type SessionStats struct {
	Contributions, Duplicates, Stale, Forged, Malformed uint64
	Offers, Wanted                                      uint64 // offered again, and not there
	Sums, Repeated                                      uint64 // sent for the first time, and again
	Evicted                                             uint64 // communicators that lost their slots to another one
	Crowded                                             uint64 // contributions of a communicator too many
}

// Stats returns the counters.
func (s *Session) Stats() SessionStats { return s.stats }

// Memory returns the bytes that slots occupy, including buffers for reuse.
func (s *Session) Memory() int64 {
	return int64(len(s.comms))*s.cfg.channelSize() + int64(s.buffers)*s.cfg.bufferSize()
}

// MaxMemory returns an upper bound of Memory for a configuration.
func (c *SessionConfig) MaxMemory() int64 {
	return int64(max(1, c.Comms)) * (c.channelSize() + int64(max(1, c.Window))*int64(c.children())*c.bufferSize())
}

// Sizes in bytes on 64-bit machines. A test compares them with the compiler's.
const (
	slotSize       = 40
	channelSize    = 104 + 16 // with its entry in the map
	bufferOverhead = 32
)

func (c *SessionConfig) children() int { return len(c.Tree.Nodes[c.Node].Children) }
func (c *SessionConfig) words() int    { return (c.children() + 63) / 64 }

// channelSize returns the size of a channel without buffers.
func (c *SessionConfig) channelSize() int64 {
	return channelSize + int64(max(1, c.Window))*(slotSize+8*int64(c.words())+bits.UintSize/8*int64(c.children()))
}

func (c *SessionConfig) bufferSize() int64 { return int64(c.Chunk) + bufferOverhead }
