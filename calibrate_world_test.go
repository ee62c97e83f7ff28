package allcast_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// After the benchmark of Join all ranks choose the same algorithm; otherwise calls would fail. Large
// operations use multicast.
func TestCalibrate(t *testing.T) {
	t.Setenv("ALLCAST_CALIBRATE", "on")
	allcasttest.Run(t, 4, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		for _, n := range []int{1, 1000, 20000, 100000, 300000} {
			send, recv := calltest.Pattern(1, c.Rank(), n), make([]byte, 4*n)
			r, err := c.StartAllgather(send, recv)
			if err == nil {
				err = r.Wait(ctx)
			}
			if err != nil {
				return err
			}
			for from := range 4 {
				if !bytes.Equal(recv[from*n:(from+1)*n], calltest.Pattern(1, from, n)) {
					return fmt.Errorf("%d bytes by %s: rank %d's block is wrong", n, r.Info().Algorithm, from)
				}
			}
			if n == 300000 && r.Info().Algorithm != "mcast" {
				return fmt.Errorf("%d bytes by %s", n, r.Info().Algorithm)
			}
		}
		return nil
	})
}
