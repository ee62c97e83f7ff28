package ip

import (
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
)

// mcastComms gives communicators groups of their own, on the sockets of the streams. A receive socket
// joins one more group per communicator, and a send socket addresses the communicator's datagrams to that
// group. Ports do not differ between the groups of a stream.
type mcastComms struct {
	m      *Multicast
	group  func(id uint32, sub int) netip.Addr
	failed error // reason why no communicator can have groups

	mu     sync.Mutex
	closed bool
	joined map[uint32][]netip.Addr // by communicator: its groups, one per stream
}

// AddComm implements fabric.CommGroups.
func (c *mcastComms) AddComm(id uint32, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil
	case c.failed != nil:
		return c.failed
	case c.joined[id] != nil:
		return fmt.Errorf("multicast: communicator %d has groups already", id)
	}
	var groups []netip.Addr
	for stream, r := range c.m.receivers {
		g := c.group(id, stream%c.m.subgroups)
		if err := r.join(g); err != nil {
			c.leave(groups)
			return err
		}
		groups = append(groups, g)
	}
	c.joined[id] = groups
	for stream, s := range c.m.senders {
		s.route(id, groups[stream])
	}
	return nil
}

// RemoveComm implements fabric.CommGroups.
func (c *mcastComms) RemoveComm(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.joined[id] == nil {
		return
	}
	for _, s := range c.m.senders {
		s.unroute(id)
	}
	c.leave(c.joined[id])
	delete(c.joined, id)
}

// leave leaves the groups of the first streams.
func (c *mcastComms) leave(groups []netip.Addr) {
	for stream, g := range groups {
		c.m.receivers[stream].leave(g)
	}
}

// close makes later calls do nothing: the sockets leave their groups when they are closed.
func (c *mcastComms) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// mcastRoutes are the destinations of communicators with groups of their own. Send reads them without a
// lock.
type mcastRoutes[T any] struct {
	table atomic.Pointer[map[uint32]T]
}

// of returns the destination of a communicator, or other if the communicator has no groups of its own.
func (r *mcastRoutes[T]) of(comm uint32, other T) T {
	if t := r.table.Load(); t != nil {
		if to, ok := (*t)[comm]; ok {
			return to
		}
	}
	return other
}

// change replaces the table by a changed copy. Only one goroutine at a time may call it.
func (r *mcastRoutes[T]) change(f func(map[uint32]T)) {
	t := map[uint32]T{}
	if old := r.table.Load(); old != nil {
		maps.Copy(t, *old)
	}
	f(t)
	r.table.Store(&t)
}

func (r *mcastRoutes[T]) set(comm uint32, to T) { r.change(func(t map[uint32]T) { t[comm] = to }) }

func (r *mcastRoutes[T]) unroute(comm uint32) { r.change(func(t map[uint32]T) { delete(t, comm) }) }
