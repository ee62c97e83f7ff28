package control

import (
	"context"
	"log/slog"
	"time"

	"github.com/allcast/allcast/internal/fabric/probe"
)

// Where communicators have multicast groups of their own, a group may not work although the job's does:
// a switch or a subnet manager may have run out of groups, or a rank could not join. The members of a new
// communicator therefore test its groups before they use them.

// joinGroups joins the multicast groups of a communicator, where it has its own. It may take long.
func (c *Control) joinGroups(id uint32, name string) {
	g := c.data.Caps().Groups
	if g == nil || id < FirstComm {
		return
	}
	if err := g.AddComm(id, name); err != nil {
		c.comms.mu.Lock()
		defer c.comms.mu.Unlock()
		level := slog.LevelWarn
		if c.comms.ranOut {
			level = slog.LevelDebug // most likely for the same reason
		}
		c.cfg.Logger.Log(context.Background(), level, "a communicator shares the job's multicast groups",
			"comm", name, "err", err)
		c.comms.ranOut, c.comms.outside[id] = true, true
	}
}

// joinLater joins the groups of a communicator that exists already. Its rounds wait for the groups.
func (c *Control) joinLater(id uint32, name string) {
	if c.data.Caps().Groups == nil {
		return
	}
	c.comms.joining[id] = &joining{done: make(chan struct{})}
	go func() {
		c.joinGroups(id, name)
		c.listen(id)
		c.submit(func() { c.joined(id) })
	}()
}

// joined lets the rounds begin that waited for their communicator's groups.
func (c *Control) joined(id uint32) {
	j := c.comms.joining[id]
	delete(c.comms.joining, id)
	close(j.done)
	if c.comms.group(id) == nil {
		go c.leaveGroups(id) // the communicator was closed meanwhile
		return
	}
	for _, op := range j.held {
		c.opened(op)
	}
}

// HasGroups reports whether communicators have multicast groups of their own. All ranks of a job agree.
func (c *Control) HasGroups() bool { return c.data.Caps().Groups != nil }

// AwaitGroups waits until this rank has joined a communicator's groups, or failed to.
func (c *Control) AwaitGroups(comm uint32) {
	var j *joining
	if c.do(func() { j = c.comms.joining[comm] }) && j != nil {
		select {
		case <-j.done:
		case <-c.over:
		}
	}
}

// A GroupProbe is this rank's part of a test of a communicator's own multicast groups.
type GroupProbe struct {
	Unheard []int  // ranks of the communicator that were not heard
	Stop    func() // ends the test
}

// listen begins to listen for the other members of a communicator, before any of them can know that all have joined
// the groups. Their first datagrams are therefore not lost.
func (c *Control) listen(comm uint32) {
	g := c.comms.group(comm)
	if g == nil || c.cfg.Multicast == nil || len(g.Members) < 2 {
		return
	}
	p := c.openProbe(comm, g)
	c.comms.mu.Lock()
	known := c.comms.groups[comm] == g
	if known {
		c.comms.probes[comm] = p
	}
	c.comms.mu.Unlock()
	if !known { // the communicator was closed meanwhile
		c.data.Probes.Close(p)
	}
}

func (c *Control) openProbe(comm uint32, g *group) *probe.Probe {
	mc := c.cfg.Multicast
	subs := mc.Subgroups() // the ports of the other streams were tested on the job's groups
	p := probe.New(c.data.Probes.Token(comm), comm, g.Rank, len(g.Members), subs, subs, mc.Capabilities().Chunk)
	c.data.Probes.Open(p)
	return p
}

// ProbeGroups listens for the other members of a communicator on its own groups, until all were heard
// or for a bounded time. All members have joined the groups before one of them calls it. This rank
// keeps sending until Stop, because others may not have heard it yet.
func (c *Control) ProbeGroups(ctx context.Context, comm uint32) *GroupProbe {
	g, mc := c.comms.group(comm), c.cfg.Multicast
	if g == nil || mc == nil {
		return &GroupProbe{Stop: func() {}}
	}
	p := c.comms.takeProbe(comm)
	if p == nil {
		p = c.openProbe(comm, g)
	}
	stop := c.data.Probes.Start(p)
	size := len(g.Members)
	limit := probe.Limit(size)
	if d := c.cfg.Deadline; d > 0 {
		limit = min(limit, d/2) // ranks that heard all others wait for the rest in a call
	}
	c.comms.mu.Lock()
	if c.comms.outside[comm] {
		limit = 0
	}
	c.comms.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.All():
	case <-timer.C:
	case <-ctx.Done():
	case <-c.over:
	}
	return &GroupProbe{Unheard: p.Unheard(), Stop: stop}
}

// ShareGroups makes a communicator share the job's groups. All members call it before one multicasts.
func (c *Control) ShareGroups(comm uint32) {
	c.leaveGroups(comm)
	c.do(func() { c.node.ShareGroups(comm) })
}

func (c *Control) leaveGroups(comm uint32) {
	if g := c.data.Caps().Groups; g != nil && comm >= FirstComm {
		g.RemoveComm(comm)
	}
}
