package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// hooks are where the kernel can look at packets of loopback.
var hooks = []string{"sockfilter", "tcx"}

// needBPF skips where the kernel cannot receive, and lets the environment ask for nothing.
func needBPF(t *testing.T, hook string) {
	t.Helper()
	ifi, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skipf("no loopback interface: %v", err)
	}
	o, err := bpf.New(bpf.Config{Hook: bpf.Hook(hook), Interface: ifi, Chunk: 1000})
	if err != nil {
		t.Skip(err)
	}
	_ = o.Close()
	plainly(t)
}

// plainly lets the environment ask for nothing.
func plainly(t *testing.T) {
	t.Helper()
	t.Setenv("ALLCAST_DATAPATH", "")
	t.Setenv("ALLCAST_HOOK", "")
}

// datapaths runs a test on all that there are.
func datapaths(t *testing.T, f func(t *testing.T, o allcast.Options)) {
	t.Helper()
	t.Run("host", func(t *testing.T) {
		plainly(t)
		f(t, allcast.Options{Datapath: "host"})
	})
	for _, h := range hooks {
		t.Run(h, func(t *testing.T) {
			needBPF(t, h)
			f(t, allcast.Options{Datapath: "bpf", Hook: h})
		})
	}
}

// A maker makes buffers.
type maker func(n int) []byte

// collective runs an operation by one algorithm, and compares every byte.
type collective func(ctx context.Context, c *allcast.Comm, mk maker, seed uint64, n int, algo string) error

var collectives = map[string]collective{
	"broadcast": func(ctx context.Context, c *allcast.Comm, mk maker, seed uint64, n int, algo string) error {
		root := int(seed) % c.Size()
		buf, want := mk(n), pattern(seed, root, n)
		if c.Rank() == root {
			copy(buf, want)
		}
		r, err := c.StartBroadcast(buf, root, allcast.WithAlgorithm(algo))
		return equal(ran(ctx, r, err, algo), buf, want)
	},
	"allgather": func(ctx context.Context, c *allcast.Comm, mk maker, seed uint64, n int, algo string) error {
		buf, counts := mk(n*c.Size()), make([]int, c.Size())
		r, err := c.StartAllgather(pattern(seed, c.Rank(), n), buf, allcast.WithAlgorithm(algo))
		if err := equal(ran(ctx, r, err, algo), buf, gathered(seed, c.Size(), n)); err != nil {
			return err
		}
		var want []byte
		for i := range counts { // blocks that differ, and an empty one
			counts[i] = n * i / c.Size()
			want = append(want, pattern(seed, i, counts[i])...)
		}
		buf = mk(len(want))
		r, err = c.StartAllgatherv(pattern(seed, c.Rank(), counts[c.Rank()]), buf, counts, allcast.WithAlgorithm(algo))
		return equal(ran(ctx, r, err, algo), buf, want)
	},
	"reduce-scatter": func(ctx context.Context, c *allcast.Comm, mk maker, seed uint64, n int, algo string) error {
		n /= 4
		want := make([]float32, n)
		for r := range c.Size() {
			for k, x := range numbers(seed, r, n*c.Size())[c.Rank()*n:][:n] {
				want[k] += x
			}
		}
		buf := mk(4 * n)
		r, err := c.StartReduceScatter(allcast.Bytes(numbers(seed, c.Rank(), n*c.Size())), buf, allcast.Float32, allcast.Sum, allcast.WithAlgorithm(algo))
		return equal(ran(ctx, r, err, algo), buf, allcast.Bytes(want))
	},
	"allreduce": func(ctx context.Context, c *allcast.Comm, mk maker, seed uint64, n int, algo string) error {
		n /= 4
		want := make([]float32, n)
		for r := range c.Size() {
			for k, x := range numbers(seed, r, n) {
				want[k] += x
			}
		}
		buf := mk(4 * n)
		r, err := c.StartAllreduce(allcast.Bytes(numbers(seed, c.Rank(), n)), buf, allcast.Float32, allcast.Sum, allcast.WithAlgorithm(algo))
		return equal(ran(ctx, r, err, algo), buf, allcast.Bytes(want))
	},
}

func equal(err error, got, want []byte) error {
	if err == nil && !bytes.Equal(got, want) {
		return errors.New("wrong data")
	}
	return err
}

// everything runs all collectives by all their algorithms.
func everything(ctx context.Context, c *allcast.Comm, mk maker) error {
	seed := uint64(0)
	for _, op := range []string{"broadcast", "allgather", "reduce-scatter", "allreduce"} {
		for _, algo := range allcast.Algorithms(op) {
			for _, n := range []int{0, 4, 4096, large(1<<20) + 12} {
				seed++
				if err := collectives[op](ctx, c, mk, seed, n, algo); err != nil {
					return fmt.Errorf("%s of %d bytes by %s: %w", op, n, algo, err)
				}
			}
		}
	}
	return nil
}

func onHeap(n int) []byte { return make([]byte, n) }

// allocated makes buffers by Alloc, and gives them back at the end.
func allocated(c *allcast.Comm) (mk maker, free func() error) {
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
