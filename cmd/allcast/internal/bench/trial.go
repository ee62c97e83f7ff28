package bench

import (
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

// newTrial allocates the buffers. Each half of a pair has its own communicator, because two calls on the same one may
// have to wait for each other.
func (b *Bench) newTrial(ctx context.Context, job *Job, algo string, n int64) (*trial, error) {
	c := &trial{Job: job, requested: algo, n: n, rounds: job.rounds(n)}
	ops, algos := halves(job.Op, algo)
	for i, op := range ops {
		comm := b.Comm
		if i > 0 {
			if b.second == nil {
				var err error
				if b.second, err = b.Comm.Dup(ctx); err != nil {
					return nil, err
				}
			}
			comm = b.second
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

func (c *trial) start() (requests, error) {
	rs := make(requests, 0, 2)
	for _, p := range c.parts {
		r, err := p.start()
		if err != nil {
			return nil, err
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// requests are concurrent operations.
type requests []*allcast.Request

func (rs requests) wait(ctx context.Context) error {
	for _, r := range rs {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// info joins the names of the algorithms. The numbers are those of the half that multicasts; the other half has none.
func (rs requests) info() (all allcast.Info) {
	names := make([]string, len(rs))
	for i, r := range rs {
		info := r.Info()
		names[i] = info.Algorithm
		all.Chains, all.Subgroups = max(all.Chains, info.Chains), max(all.Subgroups, info.Subgroups)
		all.Chunk, all.Chunks = max(all.Chunk, info.Chunk), all.Chunks+info.Chunks
	}
	all.Algorithm = strings.Join(names, "+")
	return all
}

// volume returns the bytes that nccl-tests divide by the time, and the factor between those and the bytes on the
// link of the busiest rank. Both halves of a pair count.
func (c *trial) volume(ranks int) (bytes, factor float64) {
	p, n := float64(ranks), float64(c.n)
	switch c.Op {
	case "allgather", "reduce-scatter":
		return n * p, (p - 1) / p
	case Pair:
		return 2 * n * p, (p - 1) / p
	case "allreduce":
		return n, 2 * (p - 1) / p
	}
	return n, 1
}

// auto reports whether the library chooses an algorithm.
func (c *trial) auto() bool {
	_, algos := halves(c.Op, c.requested)
	return slices.Contains(algos, "auto")
}
