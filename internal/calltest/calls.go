package calltest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/testenv"
)

// Wait waits for a request and checks that it ran the algorithm, unless that is "auto". It takes the error of
// the Start call that returned the request, and returns that error if there is one.
func Wait(ctx context.Context, r *allcast.Request, err error, algo string) error {
	if err != nil {
		return err
	}
	if err := r.Wait(ctx); err != nil {
		return err
	}
	if got := r.Info().Algorithm; got != algo && algo != "auto" {
		return fmt.Errorf("ran %s, want %s", got, algo)
	}
	return nil
}

// Allgather gathers n bytes per rank and checks the result and the algorithm.
func Allgather(ctx context.Context, c *allcast.Comm, seed uint64, n int, algo string) error {
	got := make([]byte, n*c.Size())
	r, err := c.StartAllgather(Pattern(seed, c.Rank(), n), got, allcast.WithAlgorithm(algo))
	if err := Equal(Wait(ctx, r, err, algo), got, Gathered(seed, c.Size(), n)); err != nil {
		return fmt.Errorf("allgather by %s: %w", algo, err)
	}
	return nil
}

// A Maker makes a buffer of n bytes.
type Maker func(n int) []byte

// OnHeap makes buffers on Go's heap.
func OnHeap(n int) []byte { return make([]byte, n) }

// Allocated makes buffers with Comm.Alloc; free releases all of them.
func Allocated(c *allcast.Comm) (mk Maker, free func() error) {
	var all [][]byte
	mk = func(n int) []byte {
		b, err := c.Alloc(n)
		if err != nil {
			panic(err)
		}
		all = append(all, b)
		return b
	}
	return mk, func() (err error) {
		for _, b := range all {
			err = errors.Join(err, c.Free(b))
		}
		return err
	}
}

// Collectives holds one function per operation, by name. Each runs the operation with one algorithm
// and n bytes per rank, and compares every byte. The last three are combinations of calls.
var Collectives = map[string]func(
	ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string,
) error{
	"broadcast":      broadcast,
	"allgather":      allgather,
	"reduce-scatter": reduceScatter,
	"allreduce":      allreduce,
	"gather":         gather,
	"gatherv":        gatherv,
	"scatter":        scatter,
	"scatterv":       scatterv,
	"alltoall":       alltoall,
	"alltoallv":      alltoallv,
	"reduce":         reduce,
	"sendrecv":       sendRecv,
	"coalesced":      coalesced,
	"subset":         subset,
}

// Algorithms lists the algorithms of a function of Collectives that need no aggregators.
func Algorithms(op string) []string {
	switch op {
	case "sendrecv":
		return []string{"direct"}
	case "coalesced":
		return []string{"mcast", "auto"}
	case "subset":
		return []string{"ring"}
	}
	return slices.DeleteFunc(allcast.Algorithms(op), func(algo string) bool { return algo == "inc" })
}

func broadcast(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	root := int(seed) % c.Size()
	buf, want := mk(n), Pattern(seed, root, n)
	if c.Rank() == root {
		copy(buf, want)
	}
	r, err := c.StartBroadcast(buf, root, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), buf, want)
}

func allgather(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	buf, counts := mk(n*c.Size()), make([]int, c.Size())
	r, err := c.StartAllgather(Pattern(seed, c.Rank(), n), buf, allcast.WithAlgorithm(algo))
	if err := Equal(Wait(ctx, r, err, algo), buf, Gathered(seed, c.Size(), n)); err != nil {
		return err
	}
	var want []byte
	for i := range counts { // blocks of different sizes; the first and the last one are empty
		counts[i] = n * i / c.Size() * ((i + 1) % c.Size()) / c.Size()
		want = append(want, Pattern(seed, i, counts[i])...)
	}
	buf = mk(len(want))
	r, err = c.StartAllgatherv(Pattern(seed, c.Rank(), counts[c.Rank()]), buf, counts, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), buf, want)
}

func reduceScatter(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	n /= 4
	total := n * c.Size()
	want := Sum(seed, c.Size(), total)[c.Rank()*n:][:n]
	send, buf := allcast.Bytes(Numbers(seed, c.Rank(), total)), mk(4*n)
	r, err := c.StartReduceScatter(send, buf, allcast.Float32, allcast.Sum, allcast.WithAlgorithm(algo))
	if err := Equal(Wait(ctx, r, err, algo), buf, allcast.Bytes(want)); err != nil {
		return err
	}
	counts, at := make([]int, c.Size()), 0
	total = 0
	for i := range counts { // blocks of different sizes; the first and the last one are empty
		if i == c.Rank() {
			at = total
		}
		counts[i] = 4 * (n * i / c.Size() * ((i + 1) % c.Size()) / c.Size())
		total += counts[i] / 4
	}
	sum := allcast.Bytes(Sum(seed, c.Size(), total))[4*at:][:counts[c.Rank()]]
	send, buf = allcast.Bytes(Numbers(seed, c.Rank(), total)), mk(len(sum))
	r, err = c.StartReduceScatterv(send, buf, counts, allcast.Float32, allcast.Sum, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), buf, sum)
}

func allreduce(ctx context.Context, c *allcast.Comm, mk Maker, seed uint64, n int, algo string) error {
	n /= 4
	send, buf := allcast.Bytes(Numbers(seed, c.Rank(), n)), mk(4*n)
	r, err := c.StartAllreduce(send, buf, allcast.Float32, allcast.Sum, allcast.WithAlgorithm(algo))
	return Equal(Wait(ctx, r, err, algo), buf, allcast.Bytes(Sum(seed, c.Size(), n)))
}

// Everything runs all collectives with all their algorithms, for several sizes.
func Everything(ctx context.Context, c *allcast.Comm, mk Maker) error {
	seed := uint64(0)
	for _, op := range slices.Sorted(maps.Keys(Collectives)) {
		for _, algo := range Algorithms(op) {
			for _, n := range []int{0, 4, 4096, testenv.Large(1<<20) + 12} {
				seed++
				if err := Collectives[op](ctx, c, mk, seed, n, algo); err != nil {
					return fmt.Errorf("%s of %d bytes by %s: %w", op, n, algo, err)
				}
			}
		}
	}
	return nil
}
