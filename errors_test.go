package allcast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/allcasttest"
	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// The error for corrupt memory names the ranks that differ, and matches ErrCorrupt.
func TestCorruptError(t *testing.T) {
	err := allcast.ExportError(&node.Error{
		Op: wire.Broadcast, Phase: step.Handshake, Culprit: node.NoRank, Reason: node.Corrupt,
		Missing: "nothing", Pair: &wire.CallPair{Ranks: [2]uint32{2, 3}},
	}, []int{0, 1, 2, 3})
	var re *allcast.RankError
	if !errors.Is(err, allcast.ErrCorrupt) || !errors.As(err, &re) || re.Rank != -1 ||
		!slices.Equal(re.Differ, []int{2, 3}) || !strings.Contains(err.Error(), "rank 2 and rank 3") {
		t.Error(err)
	}
}

// A Send that a node refuses is an invalid call, as if it had been refused at once.
func TestRefusedMessage(t *testing.T) {
	err := allcast.ExportError(fmt.Errorf("%w: 7 sends are in flight", node.ErrMail), []int{0, 1})
	if !errors.Is(err, allcast.ErrInvalid) || err.Error() != "allcast: invalid argument: 7 sends are in flight" {
		t.Error(err)
	}
}

// The error of a Subset whose new communicator fails is one of the Subset: callers can tell that the parent is
// intact, and get ranks of the parent.
func TestErrorOfNewCommunicator(t *testing.T) {
	err := allcast.ExportError(&node.Error{
		Op: wire.Allgather, Phase: step.Queued, Culprit: 5, Reason: node.Aborted, Missing: "everything",
	}, []int{4, 5})
	var failed *allcast.RankError
	if !errors.As(err, &failed) {
		t.Fatal(err)
	}
	got := allcast.OfCall(failed, "subset", []int{3, 4, 5})
	if got.Op != "subset" || got.Rank != 2 || got.WorldRank != 5 || !errors.Is(got, allcast.ErrAborted) ||
		!strings.Contains(got.Error(), "rank 2 (world rank 5)") {
		t.Errorf("%+v: %v", got, got)
	}
}

// The error of a call that made others says in which call they failed, and has one prefix.
func TestErrorsHaveOnePrefix(t *testing.T) {
	allcasttest.Run(t, 2, allcast.Options{}, func(ctx context.Context, c *allcast.Comm) error {
		if err := c.Abort(); err != nil {
			return err
		}
		_, split := c.Split(ctx, 0, 0)
		_, subset := c.Subset(ctx, []int{0, 1}, "both")
		for call, err := range map[string]error{"split: ": split, `subset "both" of 2 ranks: `: subset} {
			if err == nil || !strings.HasPrefix(err.Error(), "allcast: "+call) || strings.Count(err.Error(), "allcast: ") > 1 {
				t.Errorf("%s%v", call, err)
			}
		}
		return nil
	})
}
