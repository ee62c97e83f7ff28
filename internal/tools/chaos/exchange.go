//go:build linux

package main

import (
	"context"

	"github.com/allcast/allcast"
)

// between generates what one world rank has for another.
func (s script) between(call uint64, from, to int) pattern { return s.pattern(call, 1<<11|from<<5|to) }

// blocks returns the sizes of the blocks of a collective; those of a variant with counts differ.
func (st step) blocks(ranks int) []int {
	if st.do == "gatherv" || st.do == "scatterv" {
		return unevenly(ranks, st.size, st.root)
	}
	return evenly(ranks, st.size)
}

func sumOf(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func (r *rank) gatherToRoot(f *testCall, c comm, st step, id uint64, opts []allcast.CallOption) error {
	root, counts := int(st.root%uint64(c.Size())), st.blocks(c.Size())
	var send, recv []byte
	if c.Rank() == root {
		if err := r.gather(f, c, counts, id); err != nil {
			return err
		}
		send, recv = f.bufs[0], f.bufs[1]
	} else {
		want := r.script.pattern(id, c.WorldRank(c.Rank()))
		var err error
		if send, err = r.buffer(f, counts[c.Rank()]); err != nil {
			return err
		}
		want.fill(send)
		f.verify = func() error { return want.check(send) }
	}
	f.call = func(ctx context.Context) error {
		if st.do == "gather" {
			return c.Gather(ctx, send, recv, root, opts...)
		}
		return c.Gatherv(ctx, send, recv, counts, root, opts...)
	}
	return nil
}

func (r *rank) scatter(f *testCall, c comm, st step, id uint64, opts []allcast.CallOption) error {
	root, counts := int(st.root%uint64(c.Size())), st.blocks(c.Size())
	recv, err := r.buffer(f, counts[c.Rank()])
	if err != nil {
		return err
	}
	var send []byte
	if c.Rank() == root {
		if send, err = r.buffer(f, sumOf(counts)); err != nil {
			return err
		}
		at := 0
		for i, n := range counts {
			r.script.pattern(id, c.WorldRank(i)).fill(send[at : at+n])
			at += n
		}
	}
	f.call = func(ctx context.Context) error {
		if st.do == "scatter" {
			return c.Scatter(ctx, send, recv, root, opts...)
		}
		return c.Scatterv(ctx, send, recv, counts, root, opts...)
	}
	f.verify = func() error { return r.script.pattern(id, c.WorldRank(c.Rank())).check(recv) }
	return nil
}

func (r *rank) alltoall(f *testCall, c comm, st step, id uint64, opts []allcast.CallOption) error {
	me := c.Rank()
	// Two ranks compute the same size for the bytes between them.
	size := func(from, to int) int {
		n := st.size / c.Size()
		if st.do == "alltoallv" {
			n = n / 3 * int(st.root>>((from*5+to)*2%62)&3)
		}
		return n
	}
	sends, recvs := make([]int, c.Size()), make([]int, c.Size())
	for i := range sends {
		sends[i], recvs[i] = size(me, i), size(i, me)
	}
	send, err := r.buffer(f, sumOf(sends))
	if err != nil {
		return err
	}
	recv, err := r.buffer(f, sumOf(recvs))
	if err != nil {
		return err
	}
	at := 0
	for i, n := range sends {
		r.script.between(id, c.WorldRank(me), c.WorldRank(i)).fill(send[at : at+n])
		at += n
	}
	f.call = func(ctx context.Context) error {
		if st.do == "alltoall" {
			return c.Alltoall(ctx, send, recv, opts...)
		}
		return c.Alltoallv(ctx, send, recv, sends, recvs, opts...)
	}
	f.verify = func() error {
		at := 0
		for i, n := range recvs {
			if err := r.script.between(id, c.WorldRank(i), c.WorldRank(me)).check(recv[at : at+n]); err != nil {
				return err
			}
			at += n
		}
		return nil
	}
	return nil
}

// coalesced moves several buffers at once; one of them is empty.
func (r *rank) coalesced(f *testCall, c comm, st step, id uint64, opts []allcast.CallOption) error {
	root := int(st.root % uint64(c.Size()))
	isBroadcast := st.do == "broadcast-coalesced"
	var sends, recvs [][]byte
	for i := range st.n {
		n := i * st.size / c.Size() / (st.n * st.n)
		send, err := r.buffer(f, n)
		if err != nil {
			return err
		}
		sends = append(sends, send)
		if !isBroadcast {
			recv, err := r.buffer(f, n*c.Size())
			if err != nil {
				return err
			}
			recvs = append(recvs, recv)
		}
		if !isBroadcast || c.Rank() == root {
			r.script.between(id, i, c.WorldRank(c.Rank())).fill(send)
		}
	}
	f.start = func() (*allcast.Request, error) {
		if isBroadcast {
			return c.StartBroadcastCoalesced(sends, root, opts...)
		}
		return c.StartAllgatherCoalesced(sends, recvs, opts...)
	}
	f.call = func(ctx context.Context) error {
		if isBroadcast {
			return c.BroadcastCoalesced(ctx, sends, root, opts...)
		}
		return c.AllgatherCoalesced(ctx, sends, recvs, opts...)
	}
	f.verify = func() error {
		for i, b := range sends {
			from := c.WorldRank(c.Rank())
			if isBroadcast {
				from = c.WorldRank(root)
			}
			if err := r.script.between(id, i, from).check(b); err != nil {
				return err
			}
		}
		for i, b := range recvs {
			n := len(sends[i])
			for k := range c.Size() {
				if err := r.script.between(id, i, c.WorldRank(k)).check(b[k*n : (k+1)*n]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return nil
}
