package allcast_test

import (
	"context"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// TestSmallSocketBuffers broadcasts far more than the receivers' socket buffers hold, whose size is the
// default limit of Linux. How much credit keeps from being lost, tests of internal/sim count.
func TestSmallSocketBuffers(t *testing.T) {
	const size = 8
	n := testenv.Large(16 << 20)
	want := calltest.Pattern(1, 0, n)
	allcasttest.Run(t, size, allcast.Options{ReceiveBuffer: 212992}, func(ctx context.Context, c *allcast.Comm) error {
		buf := make([]byte, n)
		if c.Rank() == 0 {
			copy(buf, want)
		}
		r, err := c.StartBroadcast(buf, 0, allcast.WithAlgorithm("mcast"))
		if err := calltest.Equal(calltest.Wait(ctx, r, err, "mcast"), buf, want); err != nil {
			return err
		}
		s := c.Stats()
		t.Logf("rank %d: %d of %d chunks repaired, %d dropped, %d late",
			c.Rank(), s.RepairedChunks, r.Info().Chunks, s.DroppedChunks, s.LateChunks)
		return nil
	})
}
