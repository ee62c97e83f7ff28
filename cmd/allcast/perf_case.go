package main

import (
	"context"
	"strings"

	"github.com/allcast/allcast"
)

// perfCase is what one line of output is about: a call, or the two of a pair, again and again.
type perfCase struct {
	*perfJob
	requested string
	n         int64
	rounds    int
	parts     []*perfCall
}

// newCase makes the buffers. The halves of a pair have communicators of their own: on one,
// the second might have to wait for the first.
func (b *perfBench) newCase(ctx context.Context, job *perfJob, algo string, n int64) (*perfCase, error) {
	c := &perfCase{perfJob: job, requested: algo, n: n, rounds: job.rounds(n)}
	ops, algos := halves(job.op, algo)
	for i, op := range ops {
		comm := b.comm
		if i > 0 {
			if b.second == nil {
				var err error
				if b.second, err = b.comm.Dup(ctx); err != nil {
					return nil, err
				}
			}
			comm = b.second
		}
		part, err := job.call(comm, op, algos[i], n)
		c.parts = append(c.parts, part)
		if err != nil {
			c.free()
			return nil, err
		}
	}
	return c, nil
}

// free gives the buffers back, once no operation uses them. After a failure they stay: the
// process ends.
func (c *perfCase) free() {
	for _, p := range c.parts {
		p.free()
	}
}

// The halves of a pair contribute as different calls do, so that the data of one is
// wrong in the other.
func (c *perfCase) fill(number uint64) {
	for i, p := range c.parts {
		p.fill(number + uint64(i))
	}
}

func (c *perfCase) wrong(number uint64) (wrong int64) {
	for i, p := range c.parts {
		wrong += p.wrong(number + uint64(i))
	}
	return wrong
}

// start begins everything.
func (c *perfCase) start() (requests, error) {
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

// requests are operations under way at the same time.
type requests []*allcast.Request

func (rs requests) wait(ctx context.Context) error {
	for _, r := range rs {
		if err := r.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// info joins the names; the numbers are those of the half that multicasts, as the
// other has none.
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

// volume is what nccl-tests divide by the time, and the factor that makes of it
// what a link of the busiest rank carries. Of a pair, both halves count.
func (c *perfCase) volume(ranks int) (bytes, factor float64) {
	p, n := float64(ranks), float64(c.n)
	switch c.op {
	case "allgather", "reduce-scatter":
		return n * p, (p - 1) / p
	case perfPair:
		return 2 * n * p, (p - 1) / p
	case "allreduce":
		return n, 2 * (p - 1) / p
	}
	return n, 1
}

// picks says whether the library chose an algorithm.
func (c *perfCase) picks() bool {
	_, algos := halves(c.op, c.requested)
	for _, a := range algos {
		if a == "auto" {
			return true
		}
	}
	return false
}
