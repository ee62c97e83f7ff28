package bench

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/allcast/allcast"
)

// trial is the subject of one line of output: repeated runs of one call, or of the two calls of a pair.
type trial struct {
	*Job
	requested string // algorithm as given, which may be auto
	n         int64
	rounds    int
	parts     []*call
}

// newTrial allocates the buffers.
func (b *Bench) newTrial(ctx context.Context, job *Job, algo string, n int64) (*trial, error) {
	c := &trial{Job: job, requested: algo, n: n, rounds: job.rounds(n)}
	ops := job.operation().halves()
	algos := algorithmsOf(algo, len(ops))
	for i, op := range ops {
		comm, err := b.comm(ctx, job, i)
		if err != nil {
			return nil, err
		}
		part, err := newCall(job, comm, op, algos[i], n)
		c.parts = append(c.parts, part)
		if err != nil {
			c.free()
			return nil, err
		}
	}
	return c, nil
}

// comm returns the communicator for one half of a job. Each half has its own, because two calls on the same one may
// have to wait for each other. All jobs of a Bench have the same number of subsets.
func (b *Bench) comm(ctx context.Context, job *Job, half int) (_ *allcast.Comm, err error) {
	if b.first == nil {
		b.first = b.Comm
		if k := job.subsets(); k > 1 {
			members := make([]int, b.Comm.Size()/k)
			for i := range members {
				members[i] = b.Comm.Rank()/len(members)*len(members) + i
			}
			b.first, err = b.Comm.Subset(ctx, members, "perf")
		}
	}
	if half == 0 || err != nil {
		return b.first, err
	}
	if b.second == nil {
		b.second, err = b.first.Dup(ctx)
	}
	return b.second, err
}

// free releases the buffers once no operation uses them. After a failure they stay allocated until the process ends.
func (c *trial) free() {
	for _, p := range c.parts {
		p.free()
	}
}

// fill gives the halves of a pair different contributions, so that data of one half is wrong in the other.
func (c *trial) fill(number uint64) {
	for i, p := range c.parts {
		p.fill(number + uint64(i))
	}
}

func (c *trial) wrong(number uint64) (wrong int64) {
	for i, p := range c.parts {
		wrong += p.wrong(number + uint64(i))
	}
	return wrong
}

// start starts the operation. finish has to follow once all requests are complete.
func (c *trial) start() (g allcast.Group) {
	for _, p := range c.parts {
		p.start(p, &g)
	}
	return g
}

func (c *trial) finish(ctx context.Context) error {
	for _, p := range c.parts {
		if p.finish != nil {
			if err := p.finish(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// info joins the names of the algorithms. The numbers are those of the half that multicasts; the other half has none.
func (c *trial) info(rs []*allcast.Request) (all allcast.Info) {
	names := make([]string, len(c.parts))
	for i, p := range c.parts {
		if p.Collective == "" {
			names[i] = "p2p" // messages have no choice of algorithms
			continue
		}
		info := rs[i].Info()
		names[i] = info.Algorithm
		all.Chains, all.Subgroups = max(all.Chains, info.Chains), max(all.Subgroups, info.Subgroups)
		if info.Algorithm != "inc" { // its chunks do not go to all ranks
			all.Chunk, all.Chunks = max(all.Chunk, info.Chunk), all.Chunks+info.Chunks
		}
		all.Fallback = cmp.Or(all.Fallback, info.Fallback)
	}
	all.Algorithm = strings.Join(names, "+")
	return all
}

// volume returns the bytes that nccl-tests divide by the time: the largest buffer of this rank. Both halves of a pair
// count. The largest volume of all ranks is that of the operation.
func (c *trial) volume() (bytes int64) {
	for _, p := range c.parts {
		bytes += max(size(p.in), size(p.out))
	}
	return bytes
}

// auto reports whether the library chooses an algorithm.
func (c *trial) auto() bool {
	return slices.Contains(algorithmsOf(c.requested, len(c.parts)), "auto") && c.parts[0].Collective != ""
}
