package control

import (
	"sync"

	"github.com/allcast/allcast/internal/engine/datapath"
	"github.com/allcast/allcast/internal/fabric/probe"
)

// Communicators of all ranks, which always exist. Lifecycle is for joining and leaving. A rank that
// leaves early can therefore be told apart from one that made a different call, and a rank that has
// just joined cannot fail the joining of others.
const (
	World = iota
	Lifecycle
	FirstComm // the first free id
)

// comms are the communicators of a process.
type comms struct {
	mu      sync.Mutex // also orders Start and Close
	groups  map[uint32]*group
	outside map[uint32]bool         // communicators whose multicast groups this rank could not join
	ranOut  bool                    // there was such a communicator
	probes  map[uint32]*probe.Probe // tests of multicast groups that have not begun to send
	joining map[uint32]*joining     // communicators whose multicast groups are being joined; owned by the loop
}

// group is a communicator as callers see it.
type group struct {
	datapath.Group
	plans plans
}

// joining is the joining of a communicator's multicast groups.
type joining struct {
	done chan struct{}
	held []*datapath.Operation // rounds that wait for it
}

func newComms() comms {
	return comms{
		groups: map[uint32]*group{}, outside: map[uint32]bool{}, probes: map[uint32]*probe.Probe{},
		joining: map[uint32]*joining{},
	}
}

// group returns a communicator; nil: it does not exist.
func (s *comms) group(id uint32) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[id]
}

// takeProbe removes and returns the test of a communicator's groups; nil: there is none.
func (s *comms) takeProbe(id uint32) *probe.Probe {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.probes[id]
	delete(s.probes, id)
	return p
}

func (s *comms) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups)
}

// AddComm makes a communicator of world ranks, in the order of its ranks. No two communicators of a
// process have the same id. No two of a job have the same name, because all of them share the network.
// All members add it before one of them uses it.
func (c *Control) AddComm(id uint32, name string, members []int) error {
	c.joinGroups(id, name)
	err := c.try(func() error { return c.addComm(id, name, members) })
	if err == nil && c.HasGroups() {
		c.listen(id)
	}
	return err
}

func (c *Control) addComm(id uint32, name string, members []int) error {
	if err := c.node.AddComm(id, members); err != nil {
		return err
	}
	c.register(id, name, members)
	return nil
}

// register makes a communicator known to callers.
func (c *Control) register(id uint32, name string, members []int) {
	c.comms.mu.Lock()
	defer c.comms.mu.Unlock()
	g := &group{Group: datapath.NewGroup(name, c.cfg.Rank, members)}
	if c.eagerChunks() > 0 {
		c.data.AddGroup(id, &g.Group)
	}
	c.comms.groups[id] = g
}

// Abort breaks a communicator on all ranks.
func (c *Control) Abort(comm uint32) error {
	return c.try(func() error { return c.node.Abort(comm) })
}

// Disown ends the use of a communicator that could not be made on all ranks, because its parent broke.
func (c *Control) Disown(comm, parent uint32) error {
	return c.try(func() error { return c.node.Disown(c.now(), comm, parent) })
}

// Inherit breaks a communicator with the verdict of another, if that one is broken.
func (c *Control) Inherit(comm, from uint32) error {
	return c.try(func() error { return c.node.Inherit(comm, from) })
}

// RemoveComm ends the use of a communicator on this process. Calls under way go on. Its memory is free
// when they have ended and no other rank needs this one any more.
func (c *Control) RemoveComm(id uint32) error {
	return c.try(func() error { return c.node.RemoveComm(c.now(), id) })
}

// try runs a function of the node on the loop.
func (c *Control) try(f func() error) (err error) {
	if !c.do(func() { err = f(); c.act() }) {
		return ErrClosed
	}
	return err
}

// Comms counts the communicators that take up memory.
func (c *Control) Comms() (n int) {
	c.do(func() { n = max(c.node.Comms(), c.comms.count()) })
	return n
}

func (c *Control) removed(id uint32) {
	if c.comms.joining[id] == nil {
		go c.leaveGroups(id)
	}
	c.forgetEarly(id)
	c.comms.mu.Lock()
	delete(c.comms.outside, id)
	delete(c.comms.groups, id)
	c.comms.mu.Unlock()
	if p := c.comms.takeProbe(id); p != nil { // listen opens none any more
		c.data.Probes.Close(p)
	}
}
