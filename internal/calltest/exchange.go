package calltest

import (
	"context"

	"github.com/allcast/allcast"
)

// between returns the bytes that one rank has for another.
func between(seed uint64, from, to, n int) []byte { return Pattern(seed+uint64(from)<<32, to, n) }

// uneven returns a size for a pair of ranks; some are 0.
func uneven(from, to, n int) int { return n * ((from*3 + to) % 4) / 3 }

// exchange returns what a rank sends to all ranks, or receives from them, and the counts.
func exchange(seed uint64, size, rank int, receives bool, n func(from, to int) int) (all []byte, counts []int) {
	for r := range size {
		from, to := rank, r
		if receives {
			from, to = r, rank
		}
		all = append(all, between(seed, from, to, n(from, to))...)
		counts = append(counts, n(from, to))
	}
	return all, counts
}

func gather(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	root := int(seed) % c.Size()
	var recv, want []byte
	if c.Rank() == root {
		recv, want = mk(n*c.Size()), Gathered(seed, c.Size(), n)
	}
	r, err := c.StartGather(Pattern(seed, c.Rank(), n), recv, root, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, want)
}

func gatherv(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	root := int(seed) % c.Size()
	var recv, want []byte
	var counts []int
	if c.Rank() == root {
		want, counts = exchange(seed, c.Size(), root, true, func(from, to int) int { return uneven(from, to, n) })
		recv = mk(len(want))
	}
	send := between(seed, c.Rank(), root, uneven(c.Rank(), root, n))
	r, err := c.StartGatherv(send, recv, counts, root, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, want)
}

func scatter(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	root := int(seed) % c.Size()
	var send []byte
	if c.Rank() == root {
		send = Gathered(seed, c.Size(), n)
	}
	recv := mk(n)
	r, err := c.StartScatter(send, recv, root, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, Pattern(seed, c.Rank(), n))
}

func scatterv(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	root := int(seed) % c.Size()
	var send []byte
	var counts []int
	if c.Rank() == root {
		send, counts = exchange(seed, c.Size(), root, false, func(from, to int) int { return uneven(from, to, n) })
	}
	want := between(seed, root, c.Rank(), uneven(root, c.Rank(), n))
	recv := mk(len(want))
	r, err := c.StartScatterv(send, recv, counts, root, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, want)
}

func alltoall(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	same := func(int, int) int { return n }
	send, _ := exchange(seed, c.Size(), c.Rank(), false, same)
	want, _ := exchange(seed, c.Size(), c.Rank(), true, same)
	recv := mk(len(want))
	r, err := c.StartAlltoall(send, recv, allcast.WithAlgorithm(algo))
	if err := Equal(Wait(ctx, r, err, algo), recv, want); err != nil {
		return err
	}
	copy(recv, send) // in place
	r, err = c.StartAlltoall(nil, recv, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, want)
}

func alltoallv(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	size := func(from, to int) int { return uneven(from, to, n) }
	send, sendCounts := exchange(seed, c.Size(), c.Rank(), false, size)
	want, recvCounts := exchange(seed, c.Size(), c.Rank(), true, size)
	recv := mk(len(want))
	r, err := c.StartAlltoallv(send, recv, sendCounts, recvCounts, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, want)
}

func reduce(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	n /= 4
	root := int(seed) % c.Size()
	var recv, want []byte
	if c.Rank() == root {
		recv, want = mk(4*n), allcast.Bytes(Sum(seed, c.Size(), n))
	}
	send := allcast.Bytes(Numbers(seed, c.Rank(), n))
	r, err := c.StartReduce(send, recv, allcast.Float32, allcast.Sum, root, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), recv, want)
}
