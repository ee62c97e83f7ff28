package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
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
