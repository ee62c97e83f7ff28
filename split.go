package allcast

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
)

// NoColor is the color of ranks that Split leaves out.
const NoColor = -1

// Split makes communicators of the ranks with the same color, ordered by key and
// then by rank. All ranks of c call it. A rank with NoColor takes part, and gets
// nil.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < NoColor {
		return nil, invalid("color %d: want 0 or more, or NoColor", color)
	}
	c.job.mu.Lock()
	next := c.job.nextID
	c.job.mu.Unlock()

	// Everybody's color, key, and the first id that is free there.
	const entry = 20
	all := make([]byte, entry*c.Size())
	mine := all[entry*c.rank:][:entry]
	binary.LittleEndian.PutUint64(mine, uint64(int64(color)))
	binary.LittleEndian.PutUint64(mine[8:], uint64(int64(key)))
	binary.LittleEndian.PutUint32(mine[16:], next)
	n := c.splits.Add(1)
	if err := c.Allgather(ctx, nil, all, WithAlgorithm("bruck")); err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	type member struct{ color, key, rank int }
	var members []member
	var colors []int
	var id uint32
	for r := range c.Size() {
		e := all[entry*r:]
		m := member{int(int64(binary.LittleEndian.Uint64(e))), int(int64(binary.LittleEndian.Uint64(e[8:]))), r}
		id = max(id, binary.LittleEndian.Uint32(e[16:]))
		if m.color != NoColor {
			colors = append(colors, m.color)
		}
		if m.color == color {
			members = append(members, m)
		}
	}
	slices.Sort(colors)
	colors = slices.Compact(colors)
	c.job.mu.Lock()
	c.job.nextID = max(c.job.nextID, id+uint32(len(colors)))
	c.job.mu.Unlock()

	var sub *Comm
	if color != NoColor {
		slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
		at, _ := slices.BinarySearch(colors, color)
		sub = &Comm{job: c.job, id: id + uint32(at), name: fmt.Sprintf("%s/%d:%d", c.name, n, color)}
		for i, m := range members {
			sub.members = append(sub.members, c.members[m.rank])
			if m.rank == c.rank {
				sub.rank = i
			}
		}
		if err := c.job.AddComm(sub.id, sub.name, sub.members); err != nil {
			return nil, public(err)
		}
	}
	// A message for a communicator that is not there yet would be lost.
	if err := c.Barrier(ctx); err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	return sub, nil
}

// Dup makes another communicator of the same ranks, whose operations are ordered
// on their own. All ranks of c call it.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, c.rank) }
