package allcast

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/allcast/allcast/internal/engine"
)

// NoColor is the color of ranks that Split leaves out.
const NoColor = -1

// Split makes communicators of the ranks with the same color, ordered by key and
// then by rank. All ranks of c call it. A rank with NoColor takes part, and gets
// nil. If Split fails on one rank, for example because ctx ends or has ended there, it
// aborts c on all ranks: the others would wait for ever. Their errors name a rank that
// failed or gave up. (An argument that makes no sense begins nothing, as in other calls.)
// Where communicators have multicast groups of their own, the ranks test them before
// Split returns, in bounded time.
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
		_ = c.job.Abort(c.id) // it exists, or all is closed
		return nil, fmt.Errorf("split: %w", err)
	}
	return sub, nil
}

// part is what a rank says of itself in a Split.
type part struct {
	color, key int
	rank       int    // in the communicator that is split
	nth        uint32 // of that process's Splits
}

func (c *Comm) split(ctx context.Context, color, key int) (*Comm, error) {
	mine := part{color: color, key: key, nth: c.job.splits.Add(1) - 1}
	all, err := c.collect(ctx, mine)
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(all, func(p part) bool { return p.color != color })
	var sub *Comm
	if color != NoColor {
		// The first of them has not used this number before, and no other process has
		// numbers like it: no two communicators of a job have the same id, whatever
		// else is split meanwhile.
		first := members[0]
		id, err := c.job.newID(first.nth, c.members[first.rank])
		if err != nil {
			return nil, err
		}
		slices.SortFunc(members, func(a, b part) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
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
	// A message for a communicator that is not there yet would be lost.
	if err := c.Barrier(ctx); err != nil {
		if sub != nil {
			// Others may have come further: they learn why it is of no use.
			sub.closed.Store(true)
			_ = c.job.Disown(sub.id, c.id) // it exists, or all is closed
		}
		return nil, err
	}
	if sub != nil && c.job.OwnGroups(sub.id) {
		if err := sub.settleGroups(ctx); err != nil {
			_ = c.job.Inherit(c.id, sub.id) // c is of no use either, for the same reason
			_ = c.job.Abort(sub.id)         // the others may wait for us
			_ = sub.Close()
			var failed *RankError
			if errors.As(err, &failed) {
				return nil, failed.of(c.members)
			}
			return nil, err
		}
	}
	return sub, nil
}

// collect gets everybody's part, in the order of ranks.
func (c *Comm) collect(ctx context.Context, mine part) ([]part, error) {
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
	all := make([]part, c.Size())
	for r := range all {
		e := b[entry*r:]
		all[r] = part{int(int64(le.Uint64(e))), int(int64(le.Uint64(e[8:]))), r, le.Uint32(e[16:])}
	}
	return all, nil
}

// Dup makes another communicator of the same ranks, whose operations are ordered
// on their own. All ranks of c call it. It fails as Split does.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, 0) }
