package allcast

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// testGroups tests the multicast groups of a new communicator in bounded time. All members must have joined
// the groups. If a member cannot hear another one, all members switch to the groups of the job, which
// Join has tested.
//
// All ranks of via call it, with the communicator that they are a member of, or nil. They compare results on
// via: the new communicator may break as soon as one rank has it.
func (c *Comm) testGroups(ctx context.Context, via *Comm) error {
	const entry = 8
	le := binary.LittleEndian
	b := make([]byte, entry*via.Size())
	if c != nil && c.Size() > 1 {
		p := via.job.ProbeGroups(ctx, c.id)
		defer p.Stop()
		if n := len(p.Unheard); n > 0 {
			le.PutUint32(b[entry*via.rank:], uint32(n))
			le.PutUint32(b[entry*via.rank+4:], uint32(p.Unheard[0]))
		}
	}
	if err := via.Allgather(ctx, nil, b, WithAlgorithm("bruck")); err != nil || c == nil {
		return err
	}
	var failures []string
	for _, member := range c.members {
		e := b[entry*slices.Index(via.members, member):]
		n, first := le.Uint32(e), le.Uint32(e[4:])
		if n == 0 {
			continue
		}
		s := fmt.Sprintf("rank %d did not hear rank %d", member, c.members[int(first)%c.Size()])
		if n > 1 {
			s += fmt.Sprintf(" and %d more", n-1)
		}
		failures = append(failures, s)
	}
	if len(failures) == 0 {
		return nil
	}
	c.job.ShareGroups(c.id)
	if c.rank == 0 {
		c.job.log().Warn("the multicast groups of a communicator do not work: "+
			"it uses those of the job, so ranks outside the communicator receive its data too",
			"comm", c.id, "ranks", c.Size(), "reason", strings.Join(failures[:min(len(failures), 5)], "; "))
	}
	return nil
}
