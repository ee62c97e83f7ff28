package perf

import (
	"context"
	"errors"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// signalled returns the exit status of a job that failed because the user interrupted it; nil if it did not.
func signalled(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, allcast.ErrAborted) {
		// Another rank may have been interrupted first. Then the signal is on its way here too.
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return cli.Interrupted(ctx)
}
