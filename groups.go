package allcast

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
)

// testGroups tests the multicast groups of a new communicator in bounded time. All members must have joined
// the groups. If a member cannot hear another one, all members switch to the groups of the job, which
// Join has tested.
func (c *Comm) testGroups(ctx context.Context) error {
	if c.Size() == 1 {
		return nil
	}
	p := c.job.ProbeGroups(ctx, c.id)
	defer p.Stop()
	const entry = 8
	le := binary.LittleEndian
	b := make([]byte, entry*c.Size())
	if n := len(p.Unheard); n > 0 {
		le.PutUint32(b[entry*c.rank:], uint32(n))
		le.PutUint32(b[entry*c.rank+4:], uint32(p.Unheard[0]))
	}
	if err := c.Allgather(ctx, nil, b, WithAlgorithm("bruck")); err != nil {
		return err
	}
	var failures []string
	for r := range c.Size() {
		e := b[entry*r:]
		n, first := le.Uint32(e), le.Uint32(e[4:])
		if n == 0 {
			continue
		}
		s := fmt.Sprintf("rank %d did not hear rank %d", c.members[r], c.members[int(first)%c.Size()])
		if n > 1 {
			s += fmt.Sprintf(" and %d more", n-1)
		}
		failures = append(failures, s)
	}
	if len(failures) == 0 {
		return nil
	}
	c.job.LeaveGroups(c.id)
	if c.rank == 0 {
		c.job.log().Warn("the multicast groups of a communicator do not work: "+
			"it uses those of the job, so ranks outside the communicator receive its data too",
			"comm", c.id, "ranks", c.Size(), "reason", strings.Join(failures[:min(len(failures), 5)], "; "))
	}
	return nil
}
