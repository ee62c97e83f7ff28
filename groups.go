package allcast

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
)

// settleGroups tests a new communicator's own multicast groups, after all members have joined them. If a
// member does not hear another one, all members use the job's groups instead, which Join has tested. The
// time is bounded.
func (c *Comm) settleGroups(ctx context.Context) error {
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
	var deaf []string
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
		deaf = append(deaf, s)
	}
	if len(deaf) == 0 {
		return nil
	}
	c.job.LeaveGroups(c.id)
	if c.rank == 0 {
		c.job.log().Warn("the multicast groups of a communicator do not work: "+
			"it shares the job's groups, so that other ranks receive its data too",
			"comm", c.id, "ranks", c.Size(), "reason", strings.Join(deaf[:min(len(deaf), 5)], "; "))
	}
	return nil
}
