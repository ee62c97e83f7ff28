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

// An Alltoallv may send from the memory that it receives in, even if it sends more than it receives.
func TestAlltoallvInPlaceOfDifferentSizes(t *testing.T) {
	const most = 3000
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		// Rank 0 sends much and receives little.
		mem := bytes.Repeat([]byte{byte('a' + c.Rank())}, most+1)
		out, in := []int{1, most}, []int{1, 2}
		if c.Rank() == 1 {
			out, in = []int{2, 1}, []int{most, 1}
		}
		send, recv := mem[:out[0]+out[1]], mem[:in[0]+in[1]]
		if err := c.Alltoallv(ctx, send, recv, out, in); err != nil {
			return err
		}
		want := append(bytes.Repeat([]byte{'a'}, in[0]), bytes.Repeat([]byte{'b'}, in[1])...)
		if !bytes.Equal(recv, want) {
			return errors.New("wrong data")
		}
		return nil
	})
}

// Instead of nil, a caller may pass the memory that holds its data already.
func TestInPlaceByAddress(t *testing.T) {
	const ranks, n, root = 3, 1000, 1
	allcasttest.Run(t, ranks, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		mine, all := calltest.Pattern(1, c.Rank(), n), calltest.Gathered(1, ranks, n)
		own := func(b []byte) []byte { return b[c.Rank()*n:][:n] }
		isRoot := c.Rank() == root
		for _, algo := range allcast.Algorithms("gather") {
			send, recv := mine, make([]byte, ranks*n)
			copy(own(recv), mine)
			if isRoot {
				send = own(recv)
			}
			err := c.Gather(ctx, send, recv, root, allcast.WithAlgorithm(algo))
			if isRoot {
				err = calltest.Equal(err, recv, all)
			}
			if err != nil {
				return fmt.Errorf("gather by %s: %w", algo, err)
			}
		}
		for _, algo := range allcast.Algorithms("scatter") {
			send := bytes.Clone(all)
			recv := make([]byte, n)
			if isRoot {
				recv = own(send)
			}
			err := c.Scatter(ctx, send, recv, root, allcast.WithAlgorithm(algo))
			if err := calltest.Equal(calltest.Equal(err, recv, mine), send, all); err != nil {
				return fmt.Errorf("scatter by %s: %w", algo, err)
			}
		}
		for _, algo := range allcast.Algorithms("alltoall") {
			var buf, want []byte
			for r := range ranks {
				buf = append(buf, calltest.Pattern(uint64(r), c.Rank(), n)...)
				want = append(want, calltest.Pattern(uint64(c.Rank()), r, n)...)
			}
			err := c.Alltoall(ctx, buf, buf, allcast.WithAlgorithm(algo))
			if err := calltest.Equal(err, buf, want); err != nil {
				return fmt.Errorf("alltoall by %s: %w", algo, err)
			}
		}
		for _, algo := range allcast.Algorithms("reduce") {
			for _, op := range []allcast.ReduceOp{allcast.Sum, allcast.PremultipliedSum} {
				buf := allcast.Bytes(calltest.Numbers(1, c.Rank(), n))
				input := bytes.Clone(buf)
				err := c.Reduce(ctx, buf, buf, allcast.Float32, op, root, allcast.WithAlgorithm(algo))
				want := input // other ranks keep their input
				if isRoot {
					want = allcast.Bytes(calltest.Sum(1, ranks, n))
				}
				if err := calltest.Equal(err, buf, want); err != nil {
					return fmt.Errorf("reduce by %s: %w", algo, err)
				}
			}
		}
		return nil
	})
}
