package offload

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
	"github.com/allcast/allcast/internal/testenv"
)

// An operation that cannot complete occupies the kernel's whole table of chunks. The process therefore
// receives the next Broadcast itself, which is far larger than its socket buffer. A test of the engine
// checks that the credit fits that buffer.
func TestCreditWhenTheKernelIsFull(t *testing.T) {
	const size = 3
	n := testenv.Large(8 << 20)
	want := calltest.Pattern(1, 0, n)
	for _, h := range calltest.Hooks {
		t.Run(h, func(t *testing.T) {
			calltest.NeedBPF(t, h)
			o := allcast.Options{Datapath: "bpf", Hook: h, ReceiveBuffer: 212992}
			allcasttest.Run(t, size, o, func(ctx context.Context, c *allcast.Comm) error {
				other, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				// The root never makes this call. The others register its buffers before those of the next call.
				var full *allcast.Request
				if c.Rank() != 0 {
					whole := make([]byte, 1<<21)
					full, err = other.StartBroadcast(whole, 0, allcast.WithAlgorithm("mcast"), allcast.WithChunk(1))
					if err != nil {
						return err
					}
				}
				buf, err := c.Alloc(n)
				if err != nil {
					return err
				}
				if c.Rank() == 0 {
					copy(buf, want)
				}
				before := c.Stats()
				r, err := c.StartBroadcast(buf, 0, allcast.WithAlgorithm("mcast"))
				if err := calltest.Equal(calltest.Wait(ctx, r, err, "mcast"), buf, want); err != nil {
					return err
				}
				s := c.Stats()
				t.Logf("rank %d: %d of %d chunks repaired, %d dropped",
					c.Rank(), s.RepairedChunks-before.RepairedChunks, r.Info().Chunks, s.DroppedChunks)
				// The kernel would place all chunks in memory of Alloc; the process copies at least the first one.
				if c.Rank() != 0 && s.CopiedChunks == before.CopiedChunks {
					return errors.New("the kernel received chunks although its table was full")
				}
				if err := errors.Join(c.Barrier(ctx), other.Abort()); err != nil {
					return err
				}
				if full != nil {
					if err := full.Wait(ctx); !errors.Is(err, allcast.ErrAborted) {
						return fmt.Errorf("a call without its root: %w", err)
					}
				}
				return c.Free(buf)
			})
		})
	}
}
