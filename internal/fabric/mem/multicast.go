package mem

import (
	"bytes"
	"sync"
	"time"

	"github.com/allcast/allcast/internal/fabric"
	"github.com/allcast/allcast/internal/wire"
)

// card is the unreliable side of one rank.
type card struct {
	net     *Net
	streams []*stream

	mu     sync.Mutex
	comms  map[uint32]string // names of communicators whose groups this rank has joined
	closed bool
}

func newCard(n *Net) *card {
	c := &card{net: n, comms: map[uint32]string{}}
	for i := range n.cfg.Subgroups * max(1, n.cfg.Streams) {
		s := &stream{card: c, index: i, slots: make([][]byte, n.cfg.Batch)}
		s.cond.L = &s.mu
		c.streams = append(c.streams, s)
	}
	return c
}

// Capabilities implements fabric.Multicast.
func (c *card) Capabilities() fabric.Capabilities {
	const header = wire.HeaderSize + wire.SumSize
	cfg := &c.net.cfg
	caps := fabric.Capabilities{
		Chunk: cfg.Chunk, Batch: cfg.Batch, Room: cfg.Room, Overhead: header, Header: header, Eager: true,
	}
	if cfg.Groups {
		caps.Groups = c
	}
	return caps
}

// Subgroups implements fabric.Multicast.
func (c *card) Subgroups() int { return c.net.cfg.Subgroups }

// Streams implements fabric.Multicast.
func (c *card) Streams() int { return len(c.streams) }

// Sender implements fabric.Multicast.
func (c *card) Sender(stream int) fabric.Sender { return (*sender)(c.streams[stream]) }

// Receiver implements fabric.Multicast.
func (c *card) Receiver(stream int) fabric.Receiver { return c.streams[stream] }

// AddComm implements fabric.CommGroups.
func (c *card) AddComm(id uint32, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comms[id] = name
	return nil
}

// RemoveComm implements fabric.CommGroups.
func (c *card) RemoveComm(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.comms, id)
}

// group is the name of the group that carries a communicator; "" is the job's group.
func (c *card) group(comm uint32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.comms[comm]
}

// Close implements fabric.Multicast.
func (c *card) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, s := range c.streams {
		s.mu.Lock()
		s.closed = true
		s.cond.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

type datagram struct {
	header  wire.Header
	payload []byte
}

// stream is the queue of one stream. It is fabric.Receiver.
type stream struct {
	card  *card
	index int
	slots [][]byte
	heads []wire.Header
	sends uint64 // calls of Send
	sent  uint64 // datagrams

	mu     sync.Mutex
	cond   sync.Cond
	queue  []datagram
	woken  bool
	closed bool
	stats  fabric.ReceiverStats
}

// sender is fabric.Sender.
type sender stream

// Send implements fabric.Sender.
func (s *sender) Send(b *fabric.Batch) (int, error) {
	c := s.card
	if err := b.Check(c.net.cfg.Batch, c.net.cfg.Chunk); err != nil {
		return 0, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, fabric.ErrClosed
	}
	n := len(b.Headers)
	var err error
	if s.sends++; c.net.cfg.BusyEvery > 0 && s.sends%uint64(c.net.cfg.BusyEvery) == 0 && n > 0 {
		n, err = n/2, fabric.ErrBusy
	}
	for _, to := range c.net.cards {
		if to == c {
			continue
		}
		for i := range n {
			if g := c.group(b.Headers[i].Comm); g == "" || g == to.group(b.Headers[i].Comm) {
				to.streams[s.index].add(datagram{b.Headers[i], bytes.Clone(b.Payloads[i])})
			}
		}
	}
	s.sent += uint64(n)
	return n, err
}

// Completed implements fabric.Sender.
func (s *sender) Completed() uint64 { return s.sent }

// Await implements fabric.Sender. There is always room.
func (s *sender) Await(time.Duration) {}

func (s *stream) add(d datagram) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == s.card.net.cfg.Room {
		s.stats.Dropped++
		return
	}
	s.queue = append(s.queue, d)
	s.cond.Broadcast()
}

// Inject delivers a datagram of any content to a rank.
func (n *Net) Inject(rank, stream int, b []byte) {
	s := n.cards[rank].streams[stream]
	if len(b) >= wire.HeaderSize+wire.SumSize {
		s.add(datagram{wire.ParseSum(b), bytes.Clone(b[wire.HeaderSize+wire.SumSize:])})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Malformed++
}

// Receive implements fabric.Receiver.
func (s *stream) Receive(to fabric.Sink) error {
	s.mu.Lock()
	for len(s.queue) == 0 && !s.woken && !s.closed {
		s.cond.Wait()
	}
	if s.closed {
		s.mu.Unlock()
		return fabric.ErrClosed
	}
	list := s.queue
	s.queue, s.woken = nil, false
	s.stats.Datagrams += uint64(len(list))
	if len(list) > 0 {
		s.stats.Calls++
	}
	s.mu.Unlock()
	for len(list) > 0 {
		list = list[s.scatter(to, list):]
	}
	to.Idle()
	return nil
}

// scatter fills the slots that the sink expects, and returns how many datagrams it has handed over.
func (s *stream) scatter(to fabric.Sink, list []datagram) int {
	n, filled := to.Expect(s.slots[:min(len(s.slots), len(list))]), 0
	s.heads = s.heads[:0]
	for filled < n && len(list[filled].payload) == len(s.slots[filled]) {
		copy(s.slots[filled], list[filled].payload)
		s.heads = append(s.heads, list[filled].header)
		filled++
	}
	inPlace := 0
	if filled > 0 {
		inPlace = to.Arrived(s.heads)
	}
	rest := list[inPlace:max(filled, 1)]
	for _, d := range rest {
		to.Chunk(d.header, d.payload)
	}
	return inPlace + len(rest)
}

// Attach implements fabric.Receiver. There is no poller.
func (s *stream) Attach(fabric.Poller, fabric.Sink, func(error)) bool { return false }

// Wake implements fabric.Receiver.
func (s *stream) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = true
	s.cond.Broadcast()
}

// Pending implements fabric.Receiver.
func (s *stream) Pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) > 0
}

// Stats implements fabric.Receiver.
func (s *stream) Stats() fabric.ReceiverStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
