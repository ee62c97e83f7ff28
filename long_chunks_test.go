//go:build linux

package allcast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/calltest"
)

// Chunks of several packets travel as one super-packet.
func TestLongChunks(t *testing.T) {
	for _, tt := range []struct {
		name, fault string
		o           allcast.Options
	}{
		{"plain", "", allcast.Options{Chunk: 60_000}},
		{"largest", "", allcast.Options{Chunk: 65_453}},
		{"just more than a packet", "", allcast.Options{Chunk: 8957}},
		{"faults", "drop=5%,dup=5%,reorder=10%,seed=3", allcast.Options{Chunk: 60_000, Subgroups: 2}},
		{"integrity", "", allcast.Options{Chunk: 60_000, Integrity: true, Datapath: "host"}},
		{"secure", "", allcast.Options{
			Chunk: 60_000, Secure: true, Key: bytes.Repeat([]byte{7}, 32), Datapath: "host",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("ALLCAST_FAULT", tt.fault)
			allcasttest.Run(t, 3, tt.o, func(ctx context.Context, c *allcast.Comm) error {
				var chunks uint64
				for i, n := range []int{1, 8_956, 8_957, 59_999, 60_000, 60_001, 700_003} {
					seed := uint64(i)
					got := make([]byte, n*c.Size())
					r, err := c.StartAllgather(calltest.Pattern(seed, c.Rank(), n), got,
						allcast.WithAlgorithm("mcast"), allcast.WithSubgroups(2))
					if err != nil {
						return err
					}
					if err := r.Wait(ctx); err != nil {
						return err
					}
					if !bytes.Equal(got, calltest.Gathered(seed, c.Size(), n)) {
						return fmt.Errorf("%s of %d bytes: wrong data", r.Info().Algorithm, n)
					}
					if r.Info().Chunk != tt.o.Chunk {
						return fmt.Errorf("chunks of %d bytes, want %d", r.Info().Chunk, tt.o.Chunk)
					}
					chunks += r.Info().Chunks * uint64(c.Size()-1) / uint64(c.Size())
				}
				if got := c.Stats().ReceivedChunks; 2*got < chunks {
					return fmt.Errorf("only %d of %d chunks arrived by multicast", got, chunks)
				}
				return nil
			})
		})
	}
}

// Join refuses chunks that do not fit a super-packet, on all ranks.
func TestTooLongChunks(t *testing.T) {
	opts := slices.Repeat([]allcast.Options{{Chunk: 65_454}}, 2)
	for rank, err := range allcasttest.JoinAll(t.Context(), opts, func(context.Context, *allcast.Comm) error {
		return errors.New("joined")
	}) {
		if err == nil || !strings.Contains(err.Error(), "at most 65453") {
			t.Errorf("rank %d: got %v", rank, err)
		}
	}
}
