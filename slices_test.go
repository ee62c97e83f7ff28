package allcast_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
)

// runSlices runs f on one rank and on three: with one rank nothing is combined.
func runSlices(t *testing.T, f func(ctx context.Context, c *allcast.Comm) error) {
	t.Helper()
	for _, size := range []int{1, 3} {
		allcasttest.Run(t, size, allcast.Options{NoMulticast: true}, f)
	}
}

// equal returns an error unless a call gave the result that is wanted.
func equal[T comparable](what string, err error, got, want []T) error {
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("got %v, want %v", got, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// moveSlices checks the functions that move elements, with one element per rank from values.
func moveSlices[T interface {
	allcast.Element
	comparable
}](ctx context.Context, c *allcast.Comm, values []T) error {
	root := c.Size() - 1
	mine := []T{values[c.Rank()]}
	got := slices.Clone(mine)
	err := allcast.BroadcastSlice(ctx, c, got, root)
	if err := equal("broadcast", err, got, values[root:root+1]); err != nil {
		return err
	}
	got = make([]T, c.Size())
	err = allcast.AllgatherSlice(ctx, c, mine, got)
	if err := equal("allgather", err, got, values[:c.Size()]); err != nil {
		return err
	}
	// Rank 0 contributes two elements, the others one.
	counts := slices.Repeat([]int{1}, c.Size())
	counts[0] = 2
	want := slices.Concat(values[:1], values[:c.Size()])
	got = make([]T, len(want))
	err = allcast.AllgathervSlice(ctx, c, slices.Repeat(mine, counts[c.Rank()]), got, counts)
	if err := equal("allgatherv", err, got, want); err != nil {
		return err
	}
	// In place.
	got = make([]T, len(want))
	if c.Rank() == 0 {
		got[0] = mine[0]
	}
	got[c.Rank()+1] = mine[0]
	err = allcast.AllgathervSlice(ctx, c, nil, got, counts)
	return equal("allgatherv in place", err, got, want)
}

func TestSlicesMove(t *testing.T) {
	runSlices(t, func(ctx context.Context, c *allcast.Comm) error {
		for _, err := range []error{
			moveSlices(ctx, c, []uint16{1, 2, 65535}),
			moveSlices(ctx, c, []allcast.BF16{0x3f80, 0x7fc1, 3}),
			moveSlices(ctx, c, []allcast.F16{0x3c00, 0x7e01, 3}),
			moveSlices(ctx, c, []bool{true, false, true}),
			moveSlices(ctx, c, []int{1, -2, 3}),
			moveSlices(ctx, c, []uint{1, 2, 3}),
			moveSlices(ctx, c, []float64{1, 2.5, -3}),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// reduceSlices checks the functions that combine elements. Rank r contributes values[r]; want[n-1] is the
// result of n ranks.
func reduceSlices[T interface {
	allcast.Reducible
	comparable
}](ctx context.Context, c *allcast.Comm, op allcast.ReduceOp, values, want [3]T) error {
	n := c.Size()
	mine, result := values[c.Rank()], slices.Repeat(want[n-1:n], 5)
	got := make([]T, 5)
	err := allcast.AllreduceSlice(ctx, c, slices.Repeat([]T{mine}, 5), got, op)
	if err := equal("allreduce "+op.String(), err, got, result); err != nil {
		return err
	}
	got = slices.Repeat([]T{mine}, 5)
	err = allcast.AllreduceSlice(ctx, c, nil, got, op)
	if err := equal("allreduce in place "+op.String(), err, got, result); err != nil {
		return err
	}
	got = make([]T, 5)
	err = allcast.ReduceScatterSlice(ctx, c, slices.Repeat([]T{mine}, 5*n), got, op)
	return equal("reduce-scatter "+op.String(), err, got, result)
}

func TestSlicesReduce(t *testing.T) {
	bf16 := func(x, y, z float32) [3]allcast.BF16 {
		return [3]allcast.BF16{allcast.NewBF16(x), allcast.NewBF16(y), allcast.NewBF16(z)}
	}
	f16 := func(x, y, z float32) [3]allcast.F16 {
		return [3]allcast.F16{allcast.NewF16(x), allcast.NewF16(y), allcast.NewF16(z)}
	}
	runSlices(t, func(ctx context.Context, c *allcast.Comm) error {
		for _, err := range []error{
			reduceSlices(ctx, c, allcast.Sum, bf16(1.5, 2, -8), bf16(1.5, 0, -4.5)),
			reduceSlices(ctx, c, allcast.Sum, f16(1.5, 2, -8), f16(1.5, 0, -4.5)),
			reduceSlices(ctx, c, allcast.Average, f16(1.5, 2, 4), f16(1.5, 0, 2.5)),
			reduceSlices(ctx, c, allcast.Max, bf16(1.5, 2, -8), bf16(1.5, 0, 2)),
			reduceSlices(ctx, c, allcast.Sum, [3]int{1, -20, 1 << 30}, [3]int{1, 0, 1<<30 - 19}),
			reduceSlices(ctx, c, allcast.Sum, [3]uint{1, 20, 1 << 30}, [3]uint{1, 0, 1<<30 + 21}),
			reduceSlices(ctx, c, allcast.Average, [3]int32{-1, -2, -2}, [3]int32{-1, 0, -1}), // toward zero
			reduceSlices(ctx, c, allcast.Average, [3]uint8{2, 3, 3}, [3]uint8{2, 0, 2}),
			reduceSlices(ctx, c, allcast.And, [3]uint32{7, 6, 14}, [3]uint32{7, 0, 6}),
			reduceSlices(ctx, c, allcast.Or, [3]int64{1, 2, -16}, [3]int64{1, 0, -13}),
			reduceSlices(ctx, c, allcast.Xor, [3]int8{1, 3, 8}, [3]int8{1, 0, 10}),
			reduceSlices(ctx, c, allcast.And, [3]bool{true, true, false}, [3]bool{true, false, false}),
			reduceSlices(ctx, c, allcast.Or, [3]bool{false, true, false}, [3]bool{false, false, true}),
			reduceSlices(ctx, c, allcast.Xor, [3]bool{true, true, true}, [3]bool{true, false, true}),
		} {
			if err != nil {
				return err
			}
		}
		// Unsigned 16-bit integers are named explicitly.
		x := []uint16{uint16(c.Rank()), 1000}
		err := c.Allreduce(ctx, nil, allcast.Bytes(x), allcast.Uint16, allcast.Sum)
		want := []uint16{uint16(c.Size() * (c.Size() - 1) / 2), uint16(1000 * c.Size())}
		if err := equal("allreduce of u16", err, x, want); err != nil {
			return err
		}
		// Any byte but 0 is true, and the result is 0 or 1 even on a single rank.
		b := []byte{0, 1, 2, 255}
		err = c.Allreduce(ctx, nil, b, allcast.Bool, allcast.And)
		return equal("allreduce of bytes as bool", err, b, []byte{0, 1, 1, 1})
	})
}

// Nil means "in place", and an empty slice does not.
func TestBytesOfNothing(t *testing.T) {
	if allcast.Bytes[float32](nil) != nil || allcast.Bytes([]float32{}) == nil {
		t.Error("Bytes does not tell nil and empty slices apart")
	}
}
