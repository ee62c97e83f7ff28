package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// shifted copies content to an address that is odd, and returns a function that checks that nothing around the copy
// has changed.
func shifted(content []byte, by int) (buf []byte, intact func() error) {
	const guard, room = 0xA5, 64
	all := bytes.Repeat([]byte{guard}, len(content)+room)
	buf = all[by : by+len(content) : by+len(content)]
	copy(buf, content)
	return buf, func() error {
		if n := bytes.Count(all[:by], []byte{guard}) + bytes.Count(all[by+len(content):], []byte{guard}); n != room {
			return errors.New("bytes around a buffer have changed")
		}
		return nil
	}
}

// encode returns the bytes of numbers that all element types can represent.
func encode(t allcast.DataType, values []float32) []byte {
	switch t {
	case allcast.Float16:
		return convert(values, allcast.NewF16)
	case allcast.BFloat16:
		return convert(values, allcast.NewBF16)
	case allcast.Float64:
		return convert(values, func(x float32) float64 { return float64(x) })
	case allcast.Int32:
		return convert(values, func(x float32) int32 { return int32(x) })
	case allcast.Int64:
		return convert(values, func(x float32) int64 { return int64(x) })
	case allcast.Uint16:
		return convert(values, func(x float32) uint16 { return uint16(x) })
	}
	return allcast.Bytes(values)
}

func convert[T allcast.Element](values []float32, to func(float32) T) []byte {
	s := make([]T, len(values))
	for i, x := range values {
		s[i] = to(x)
	}
	return allcast.Bytes(s)
}

// Tensors may begin at any address. Reductions compute the right bits there, and write nothing else.
func TestUnalignedReductions(t *testing.T) {
	const size = 4
	kinds := []struct {
		t  allcast.DataType
		op allcast.ReduceOp
	}{
		{allcast.Float32, allcast.Average},
		{allcast.Float32, allcast.PremultipliedSum},
		{allcast.Float64, allcast.Average},
		{allcast.Float64, allcast.PremultipliedSum},
		{allcast.Float16, allcast.Average},
		{allcast.Float16, allcast.PremultipliedSum},
		{allcast.BFloat16, allcast.Average},
		{allcast.BFloat16, allcast.PremultipliedSum},
		{allcast.Int32, allcast.Average},
		{allcast.Int64, allcast.Sum},
		{allcast.Uint16, allcast.Sum},
	}
	allcasttest.Run(t, size, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for i, k := range kinds {
			for _, elements := range []int{size, 9000} {
				if err := reduceUnaligned(ctx, c, k.t, k.op, 2*i+1, elements); err != nil {
					return fmt.Errorf("%v of %d %v: %w", k.op, elements, k.t, err)
				}
			}
		}
		return nil
	})
}

// reduceUnaligned makes all reductions by all algorithms in memory with an odd address.
func reduceUnaligned(
	ctx context.Context, c *allcast.Comm, t allcast.DataType, op allcast.ReduceOp, by, elements int,
) error {
	factor := func(rank int) float32 { // a power of two, so that all results are exact
		if op == allcast.PremultipliedSum {
			return float32(int(2) << rank)
		}
		return 1
	}
	input, sum := make([]float32, elements), make([]float32, elements)
	for i := range sum {
		for rank := range c.Size() {
			x := float32(4 * ((i + rank) % 3))
			if rank == c.Rank() {
				input[i] = x
			}
			sum[i] += x * factor(rank)
		}
		if op == allcast.Average {
			sum[i] /= float32(c.Size())
		}
	}
	in, want := encode(t, input), encode(t, sum)
	block := len(in) / c.Size()
	opts := func(algo string) []allcast.CallOption {
		return []allcast.CallOption{allcast.WithAlgorithm(algo), allcast.WithFactor(float64(factor(c.Rank())))}
	}
	check := func(call func(send, recv []byte) error, recvBytes int, want []byte) error {
		send, sendIntact := shifted(in, by%64)
		recv, recvIntact := shifted(make([]byte, recvBytes), (by+2)%64)
		err := call(send, recv)
		return errors.Join(
			calltest.Equal(err, recv, want), calltest.Equal(nil, send, in), sendIntact(), recvIntact())
	}
	for _, algo := range calltest.Algorithms("allreduce") {
		err := check(func(send, recv []byte) error {
			return c.Allreduce(ctx, send, recv, t, op, opts(algo)...)
		}, len(in), want)
		if err != nil {
			return fmt.Errorf("allreduce by %s: %w", algo, err)
		}
		buf, intact := shifted(in, by%64)
		err = c.Allreduce(ctx, nil, buf, t, op, opts(algo)...)
		if err := errors.Join(calltest.Equal(err, buf, want), intact()); err != nil {
			return fmt.Errorf("allreduce in place by %s: %w", algo, err)
		}
	}
	for _, algo := range calltest.Algorithms("reduce-scatter") {
		err := check(func(send, recv []byte) error {
			return c.ReduceScatter(ctx, send, recv, t, op, opts(algo)...)
		}, block, want[c.Rank()*block:][:block])
		if err != nil {
			return fmt.Errorf("reduce-scatter by %s: %w", algo, err)
		}
	}
	for _, algo := range allcast.Algorithms("reduce") {
		result := want
		if c.Rank() != 1 {
			result = make([]byte, len(want)) // unchanged
		}
		err := check(func(send, recv []byte) error {
			return c.Reduce(ctx, send, recv, t, op, 1, opts(algo)...)
		}, len(in), result)
		if err != nil {
			return fmt.Errorf("reduce by %s: %w", algo, err)
		}
	}
	return nil
}
