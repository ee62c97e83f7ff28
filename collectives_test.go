package allcast_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// sizes are close to the boundaries of chunks, segments and blocks.
var sizes = []int{0, 1, 4095, 4096, 4097, testenv.Large(1<<20) + 13}

// each runs a test for several numbers of ranks and every algorithm of an operation.
func each(t *testing.T, op string, f func(ctx context.Context, c *allcast.Comm, algo string) error) {
	t.Helper()
	for _, size := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprintf("P=%d", size), func(t *testing.T) {
			allcasttest.Run(t, size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
				for _, algo := range calltest.Algorithms(op) {
					if err := f(ctx, c, algo); err != nil {
						return fmt.Errorf("%s by %s: %w", op, algo, err)
					}
				}
				return nil
			})
		})
	}
}

func TestAllgather(t *testing.T) {
	each(t, "allgather", func(ctx context.Context, c *allcast.Comm, algo string) error {
		for i, n := range sizes {
			want := calltest.Gathered(uint64(i), c.Size(), n)
			got := make([]byte, c.Size()*n)
			r, err := c.StartAllgather(calltest.Pattern(uint64(i), c.Rank(), n), got, allcast.WithAlgorithm(algo))
			if err := calltest.Wait(ctx, r, err, algo); err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%d bytes: wrong data", n)
			}
			// In place.
			got = make([]byte, c.Size()*n)
			copy(got[c.Rank()*n:], calltest.Pattern(uint64(i), c.Rank(), n))
			if err := c.Allgather(ctx, nil, got, allcast.WithAlgorithm(algo)); err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%d bytes in place: wrong data", n)
			}
		}
		return nil
	})
}

func TestAllgatherv(t *testing.T) {
	each(t, "allgather", func(ctx context.Context, c *allcast.Comm, algo string) error {
		counts := make([]int, c.Size())
		var want []byte
		for r := range counts {
			counts[r] = (r * 7919) % 20011
			want = append(want, calltest.Pattern(1, r, counts[r])...)
		}
		got := make([]byte, len(want))
		block := calltest.Pattern(1, c.Rank(), counts[c.Rank()])
		if err := c.Allgatherv(ctx, block, got, counts, allcast.WithAlgorithm(algo)); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("counts %v: wrong data", counts)
		}
		return nil
	})
}

func TestMulticastShapes(t *testing.T) {
	for _, size := range []int{2, 3, 5, 8} {
		t.Run(fmt.Sprintf("P=%d", size), func(t *testing.T) {
			allcasttest.Run(t, size, allcast.Options{Subgroups: 4}, func(ctx context.Context, c *allcast.Comm) error {
				for chains := 1; chains <= 3; chains++ {
					for subs := 1; subs <= 4; subs++ {
						for i, n := range sizes {
							opts := []allcast.CallOption{
								allcast.WithAlgorithm("mcast"), allcast.WithChains(chains), allcast.WithSubgroups(subs),
							}
							got := make([]byte, size*n)
							block := calltest.Pattern(uint64(i), c.Rank(), n)
							if err := c.Allgather(ctx, block, got, opts...); err != nil {
								return err
							}
							if !bytes.Equal(got, calltest.Gathered(uint64(i), size, n)) {
								return fmt.Errorf("allgather of %d bytes, %d chains, %d subgroups: wrong data",
									n, chains, subs)
							}
							buf := make([]byte, n)
							root := (i + chains) % size
							if c.Rank() == root {
								copy(buf, calltest.Pattern(uint64(i), root, n))
							}
							if err := c.Broadcast(ctx, buf, root, opts...); err != nil {
								return err
							}
							if !bytes.Equal(buf, calltest.Pattern(uint64(i), root, n)) {
								return fmt.Errorf("broadcast of %d bytes, %d subgroups: wrong data", n, subs)
							}
						}
					}
				}
				return nil
			})
		})
	}
}

func TestBroadcast(t *testing.T) {
	each(t, "broadcast", func(ctx context.Context, c *allcast.Comm, algo string) error {
		for i, n := range sizes {
			root := i % c.Size()
			buf := make([]byte, n)
			if c.Rank() == root {
				copy(buf, calltest.Pattern(uint64(i), root, n))
			}
			r, err := c.StartBroadcast(buf, root, allcast.WithAlgorithm(algo))
			if err := calltest.Wait(ctx, r, err, algo); err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
			if !bytes.Equal(buf, calltest.Pattern(uint64(i), root, n)) {
				return fmt.Errorf("%d bytes from %d: wrong data", n, root)
			}
		}
		return nil
	})
}

func TestReduceScatter(t *testing.T) {
	each(t, "reduce-scatter", func(ctx context.Context, c *allcast.Comm, algo string) error {
		for i, n := range []int{0, 1, 1023, testenv.Large(1 << 18)} {
			want := make([]float32, n)
			for r := range c.Size() {
				for k, x := range calltest.Numbers(uint64(i), r, n*c.Size())[c.Rank()*n:][:n] {
					want[k] += x
				}
			}
			send := calltest.Numbers(uint64(i), c.Rank(), n*c.Size())
			got := make([]float32, n)
			how := allcast.WithAlgorithm(algo)
			if err := allcast.ReduceScatterSlice(ctx, c, send, got, allcast.Sum, how); err != nil {
				return err
			}
			if !bytes.Equal(allcast.Bytes(got), allcast.Bytes(want)) {
				return fmt.Errorf("%d elements: wrong data", n)
			}
			input := calltest.Numbers(uint64(i), c.Rank(), n*c.Size())
			if !bytes.Equal(allcast.Bytes(send), allcast.Bytes(input)) {
				return fmt.Errorf("%d elements: the input has changed", n)
			}
			// In place: the result replaces this rank's part of the input.
			part := send[c.Rank()*n : (c.Rank()+1)*n]
			if err := allcast.ReduceScatterSlice(ctx, c, send, part, allcast.Average, how); err != nil {
				return err
			}
			for k := range want {
				if part[k] != want[k]/float32(c.Size()) {
					return fmt.Errorf("%d elements in place: wrong average at %d", n, k)
				}
			}
			copy(input[c.Rank()*n:], part)
			if !bytes.Equal(allcast.Bytes(send), allcast.Bytes(input)) {
				return fmt.Errorf("%d elements in place: the rest of the input has changed", n)
			}
		}
		return nil
	})
}

func TestAllreduce(t *testing.T) {
	each(t, "allreduce", func(ctx context.Context, c *allcast.Comm, algo string) error {
		for i, n := range []int{0, 1, 1023, testenv.Large(1<<18) + 1} {
			sum, maximum := make([]float32, n), make([]float32, n)
			for k := range maximum {
				maximum[k] = float32(math.Inf(-1))
			}
			for r := range c.Size() {
				for k, x := range calltest.Numbers(uint64(i), r, n) {
					sum[k] += x
					maximum[k] = max(maximum[k], x)
				}
			}
			input := calltest.Numbers(uint64(i), c.Rank(), n)
			got := make([]float32, n)
			how := allcast.WithAlgorithm(algo)
			if err := allcast.AllreduceSlice(ctx, c, input, got, allcast.Sum, how); err != nil {
				return err
			}
			if !bytes.Equal(allcast.Bytes(got), allcast.Bytes(sum)) {
				return fmt.Errorf("%d elements: wrong sum", n)
			}
			if !bytes.Equal(allcast.Bytes(input), allcast.Bytes(calltest.Numbers(uint64(i), c.Rank(), n))) {
				return fmt.Errorf("%d elements: the input has changed", n)
			}
			if err := allcast.AllreduceSlice(ctx, c, nil, input, allcast.Max, how); err != nil {
				return err
			}
			if !bytes.Equal(allcast.Bytes(input), allcast.Bytes(maximum)) {
				return fmt.Errorf("%d elements in place: wrong maximum", n)
			}
		}
		return nil
	})
}

func TestManyInFlight(t *testing.T) {
	const comms, flight, n = 8, 4, 100_003
	allcasttest.Run(t, 4, allcast.Options{Subgroups: 2}, func(ctx context.Context, world *allcast.Comm) error {
		type pending struct {
			r    *allcast.Request
			got  []byte
			seed uint64
		}
		var all []pending
		for k := range comms {
			c, err := world.Dup(ctx)
			if err != nil {
				return err
			}
			for i := range flight {
				p := pending{got: make([]byte, world.Size()*n), seed: uint64(k*flight + i)}
				p.r, err = c.StartAllgather(calltest.Pattern(p.seed, c.Rank(), n), p.got,
					allcast.WithAlgorithm("mcast"), allcast.WithSubgroups(1+i%2), allcast.WithChains(1+k%3))
				if err != nil {
					return err
				}
				all = append(all, p)
			}
		}
		for _, p := range all {
			if err := p.r.Wait(ctx); err != nil {
				return err
			}
			if !bytes.Equal(p.got, calltest.Gathered(p.seed, world.Size(), n)) {
				return fmt.Errorf("operation %d: wrong data", p.seed)
			}
		}
		return nil
	})
}

func TestSplit(t *testing.T) {
	allcasttest.Run(t, 7, allcast.Options{}, func(ctx context.Context, world *allcast.Comm) error {
		color := world.Rank() % 3
		if color == 2 {
			color = allcast.NoColor
		}
		// In reverse order, so that ranks differ from world ranks.
		c, err := world.Split(ctx, color, -world.Rank())
		if err != nil || c == nil {
			if color != allcast.NoColor {
				return fmt.Errorf("color %d: %v, %w", color, c, err)
			}
			return err
		}
		// Both halves split again and get the same ids. Their datagrams must not mix.
		if c, err = c.Dup(ctx); err != nil {
			return err
		}
		if err := calltest.Allgather(ctx, c, uint64(color), 50_000, "mcast"); err != nil {
			return fmt.Errorf("color %d: %w", color, err)
		}
		return nil
	})
}
