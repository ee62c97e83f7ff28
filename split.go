package allcast

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/allcast/allcast/internal/engine"
)

// NoColor is the color of ranks that get no communicator from Split.
const NoColor = -1

// Split makes one communicator per color, of the ranks with that color, ordered by key and then by rank. All
// ranks of c call it, including those with NoColor, which get nil.
//
// If Split fails on one rank, for example because its ctx has ended, it aborts c on all ranks, which would
// otherwise wait forever. Their errors name a rank that failed or gave up. An invalid argument aborts
// nothing, as in other calls. If communicators have their own multicast groups, the ranks test these groups
// in bounded time before Split returns.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	switch {
	case c == nil:
		return nil, invalid("a nil communicator")
	case color < NoColor:
		return nil, invalid("color %d: want 0 or more, or NoColor", color)
	case c.closed.Load():
		return nil, exportError(engine.ErrClosed, nil)
	}
	sub, err := c.split(ctx, color, key)
	if err != nil {
		_ = c.job.Abort(c.id) // fails only if the job is closed
		return nil, during("split", err)
	}
	return sub, nil
}

// splitArgs are the arguments of one rank's Split.
type splitArgs struct {
	color, key int
	rank       int    // rank in the communicator that is split
	nth        uint32 // number of earlier Splits and Shrinks of that process
}

func (c *Comm) split(ctx context.Context, color, key int) (*Comm, error) {
	mine := splitArgs{color: color, key: key, nth: c.job.splits.Add(1) - 1}
	all, err := c.gatherSplitArgs(ctx, mine)
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(all, func(p splitArgs) bool { return p.color != color })
	var sub *Comm
	if color != NoColor {
		first := members[0] // the lowest rank, so that all members use the same id
		id, err := c.job.newID(first.nth, c.members[first.rank])
		if err != nil {
			return nil, err
		}
		slices.SortFunc(members, func(a, b splitArgs) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank))
		})
		sub = &Comm{job: c.job, id: id}
		for i, m := range members {
			sub.members = append(sub.members, c.members[m.rank])
			if m.rank == c.rank {
				sub.rank = i
			}
		}
		if err := c.job.AddComm(sub.id, strconv.FormatUint(uint64(id), 10), sub.members); err != nil {
			return nil, exportError(err, c.members)
		}
	}
	// A message for a communicator that does not exist yet would be lost.
	err = c.Barrier(ctx)
	if err == nil && c.job.HasGroups() {
		err = sub.testGroups(ctx, c)
	}
	if err != nil {
		if sub != nil {
			// Other ranks may already use sub: they learn why it failed.
			sub.closed.Store(true)
			_ = c.job.Disown(sub.id, c.id) // fails only if the job is closed
		}
		return nil, err
	}
	return sub, nil
}

// gatherSplitArgs returns the arguments of all ranks, in rank order.
func (c *Comm) gatherSplitArgs(ctx context.Context, mine splitArgs) ([]splitArgs, error) {
	const entry = 20
	le := binary.LittleEndian
	b := make([]byte, entry*c.Size())
	to := b[entry*c.rank:]
	le.PutUint64(to, uint64(int64(mine.color)))
	le.PutUint64(to[8:], uint64(int64(mine.key)))
	le.PutUint32(to[16:], mine.nth)
	if err := c.Allgather(ctx, nil, b, WithAlgorithm("bruck")); err != nil {
		return nil, err
	}
	all := make([]splitArgs, c.Size())
	for r := range all {
		e := b[entry*r:]
		all[r] = splitArgs{int(int64(le.Uint64(e))), int(int64(le.Uint64(e[8:]))), r, le.Uint32(e[16:])}
	}
	return all, nil
}

// Dup makes another communicator of the same ranks. The order of its operations is independent of that of c.
// All ranks of c call it. It fails like Split.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, 0) }
