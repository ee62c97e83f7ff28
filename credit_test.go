package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/allcast/allcast"
)

// TestSmallSocketBuffers broadcasts far more than the receivers' socket buffers
// hold, which are as small as Linux's default clamps them: credit must keep the root
// from overrunning them.
func TestSmallSocketBuffers(t *testing.T) {
	const size = 8
	n := large(16 << 20)
	want := pattern(1, 0, n)
	ranks(t, size, allcast.Options{ReceiveBuffer: 212992}, func(ctx context.Context, c *allcast.Comm) error {
		buf := make([]byte, n)
		if c.Rank() == 0 {
			copy(buf, want)
		}
		r, err := c.StartBroadcast(buf, 0, allcast.WithAlgorithm("mcast"))
		if err := ran(ctx, r, err, "mcast"); err != nil {
			return err
		}
		if !bytes.Equal(buf, want) {
			return errors.New("broadcast by mcast: wrong data")
		}
		s := c.Stats()
		if s.RepairedChunks > r.Info().Chunks/100 {
			t.Errorf("rank %d: %d of %d chunks repaired, %d dropped, %d late", c.Rank(), s.RepairedChunks, r.Info().Chunks, s.DroppedChunks, s.LateChunks)
		}
		return nil
	})
}
