//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/allcast/allcast"
)

// members returns the ranks of a Subset, in its order.
func (st step) members(ranks int) []int {
	n := 1 + int(st.root>>32)%ranks
	return rand.New(rand.NewPCG(st.root, 0)).Perm(ranks)[:n]
}

// subset makes a communicator of some ranks. All ranks add it to their pools, so that these stay equally long.
// Ranks that are not members add an empty one and skip its steps.
func (r *rank) subset(ctx context.Context, st step) error {
	if len(r.pool) == maxPool {
		return nil
	}
	c := comm{name: madeBy(r.call) + "subset"}
	if members := st.members(r.main.Size()); slices.Contains(members, r.main.Rank()) {
		if err := r.makeSubset(ctx, &c, members, fmt.Sprint(st.n)); err != nil {
			return err
		}
	}
	r.pool = append(r.pool, c)
	return nil
}

// makeSubset makes a communicator. It stays empty on all members if the context of one of them ended.
func (r *rank) makeSubset(ctx context.Context, into *comm, members []int, tag string) error {
	limited, cancel := r.randomDeadline(ctx, oftenDeadlines)
	defer cancel()
	r.commName = r.main.name
	c, err := r.main.Subset(limited, members, tag)
	if limited != ctx && err == nil {
		r.count.InTime++
	}
	if err == nil {
		// Subset may have failed on other members, which then have aborted the communicator.
		r.commName = into.name
		if err = c.Barrier(ctx); err == nil {
			r.count.Comms++
			into.Comm = c
			return nil
		}
		_ = c.Close() // it is broken
	}
	var failed *allcast.RankError
	n, ok := r.commFailure(err)
	switch {
	case !r.script.mode.cancels(), !ok:
		return err
	case c == nil && errors.As(err, &failed) && failed.Op != "subset":
		return err // the main communicator is broken
	}
	r.commName = into.name
	r.report(n)
	return nil
}
