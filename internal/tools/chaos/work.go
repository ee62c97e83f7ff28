//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/allcast/allcast"
)

// report is how often ranks say how far they are, and look whether it is over: in calls.
const report = 16

// most communicators beside the main one.
const poolMost = 3

// work follows the script until it is over on all ranks.
func (r *rank) work(ctx context.Context) error {
	for ; ; r.call++ {
		if r.call%report == report-1 {
			say(note{What: sayTick, Epoch: r.script.epoch, Call: r.call, tally: r.tally()})
			if over, err := r.isOver(ctx); err != nil || over {
				return err
			}
			continue
		}
		st := r.script.at(r.call)
		r.enter(st.String())
		if err := r.step(ctx, st); err != nil {
			return err
		}
		r.leave()
	}
}

// isOver says whether all ranks were told to end.
func (r *rank) isOver(ctx context.Context) (bool, error) {
	flag := []byte{0}
	if r.over.Load() {
		flag[0] = 1
	}
	r.enter("over?")
	defer r.leave()
	if err := r.main.Allreduce(ctx, nil, flag, allcast.Uint8, allcast.Min); err != nil {
		return false, err
	}
	return flag[0] == 1, nil
}

func (r *rank) step(ctx context.Context, st step) error {
	switch st.do {
	case "split":
		if len(r.pool) == poolMost {
			return nil
		}
		c, err := r.main.Split(ctx, r.main.Rank()%st.colors, int(st.root%2)*-r.main.Rank())
		if err != nil {
			return err
		}
		r.pool = append(r.pool, c)
		r.comms.Add(1)
		return nil
	case "close":
		if len(r.pool) == 0 {
			return nil
		}
		c := r.pool[0]
		r.pool = r.pool[1:]
		return c.Close()
	}
	n := 1
	if st.do == "burst" {
		n = st.n
	}
	pending := make([]*flight, 0, n)
	var first error
	for i := range n {
		one := st
		if st.do == "burst" {
			one.do, one.algo, one.on, one.size = "allgather", algorithms["allgather"][(st.root+uint64(i))%5], st.on+i, st.size/n
		}
		f, err := r.start(one, uint64(i))
		if err != nil {
			first = err
			break
		}
		pending = append(pending, f)
	}
	// All of them, also after a failure: their buffers are theirs until then.
	for _, f := range pending {
		if err := f.req.Wait(ctx); err != nil {
			if first == nil {
				first = err
			}
		} else if err := f.verify(); err != nil {
			r.say(sayWrong, nil, err)
			return err
		} else {
			r.calls.Add(1)
			r.bytes.Add(uint64(st.size))
		}
	}
	return first
}

// flight is a call under way.
type flight struct {
	req    *allcast.Request
	verify func() error
}

func (r *rank) on(st step) *allcast.Comm {
	if i := st.on % (len(r.pool) + 1); i > 0 {
		return r.pool[i-1]
	}
	return r.main
}

// start begins a call; nth tells those of a burst apart.
func (r *rank) start(st step, nth uint64) (*flight, error) {
	c := r.on(st)
	id := r.call<<2 | nth
	opts := []allcast.CallOption{allcast.WithAlgorithm(st.algo)}
	if st.algo == "mcast" {
		opts = append(opts, allcast.WithChains(st.chains), allcast.WithSubgroups(min(st.trees, r.trees)))
	}
	switch st.do {
	case "broadcast":
		return r.broadcast(c, st, id, opts)
	case "allgather":
		return r.gather(c, evenly(c.Size(), st.size), id, func(send, recv []byte) (*allcast.Request, error) { return c.StartAllgather(send, recv, opts...) })
	case "allgatherv":
		counts := unevenly(c.Size(), st.size, st.root)
		return r.gather(c, counts, id, func(send, recv []byte) (*allcast.Request, error) {
			return c.StartAllgatherv(send, recv, counts, opts...)
		})
	case "reduce":
		return r.reduce(c, st.size, id, true, opts)
	case "allreduce":
		return r.reduce(c, st.size, id, false, opts)
	}
	req, err := c.StartBarrier()
	return &flight{req, func() error { return nil }}, err
}

func (r *rank) broadcast(c *allcast.Comm, st step, id uint64, opts []allcast.CallOption) (*flight, error) {
	root := int(st.root % uint64(c.Size()))
	want := make([]byte, st.size)
	r.script.fill(want, id, c.WorldRank(root))
	buf := make([]byte, st.size)
	if c.Rank() == root {
		copy(buf, want)
	}
	req, err := c.StartBroadcast(buf, root, opts...)
	return &flight{req, func() error { return same(buf, want) }}, err
}

func (r *rank) gather(c *allcast.Comm, counts []int, id uint64, start func(send, recv []byte) (*allcast.Request, error)) (*flight, error) {
	var want []byte
	var mine []byte
	for i, n := range counts {
		b := make([]byte, n)
		r.script.fill(b, id, c.WorldRank(i))
		if i == c.Rank() {
			mine = b
		}
		want = append(want, b...)
	}
	got := make([]byte, len(want))
	req, err := start(mine, got)
	return &flight{req, func() error { return same(got, want) }}, err
}

// reduce adds unsigned numbers, which gives the same in any order.
func (r *rank) reduce(c *allcast.Comm, size int, id uint64, scatter bool, opts []allcast.CallOption) (*flight, error) {
	n := size / 8 / c.Size() * c.Size() * 8
	sum, mine := make([]byte, n), make([]byte, n)
	for i := range c.Size() {
		b := make([]byte, n)
		r.script.fill(b, id, c.WorldRank(i))
		if i == c.Rank() {
			copy(mine, b)
		}
		for k := 0; k < n; k += 8 {
			binary.LittleEndian.PutUint64(sum[k:], binary.LittleEndian.Uint64(sum[k:])+binary.LittleEndian.Uint64(b[k:]))
		}
	}
	if scatter {
		part := n / c.Size()
		got := make([]byte, part)
		req, err := c.StartReduceScatter(mine, got, allcast.Uint64, allcast.Sum, opts...)
		return &flight{req, func() error { return same(got, sum[part*c.Rank():][:part]) }}, err
	}
	got := make([]byte, n)
	req, err := c.StartAllreduce(mine, got, allcast.Uint64, allcast.Sum, opts...)
	return &flight{req, func() error { return same(got, sum) }}, err
}

func same(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	bad, first := 0, -1
	for i := range want {
		if got[i] != want[i] {
			if bad++; first < 0 {
				first = i
			}
		}
	}
	return fmt.Errorf("%d of %d bytes are wrong, the first at %d", bad, len(want), first)
}

func evenly(ranks, size int) []int {
	counts := make([]int, ranks)
	for i := range counts {
		counts[i] = size / ranks
	}
	return counts
}

// unevenly gives some nothing, and some more than others.
func unevenly(ranks, size int, draw uint64) []int {
	counts := evenly(ranks, size)
	for i := range counts {
		counts[i] = counts[i] / 3 * int(draw>>(2*i%62)&3)
	}
	return counts
}
