package perf

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// untilSignal returns a context that ends when the user interrupts the job. Its cause is then an exit status, that of a
// shell command that the signal ended. The next signal has its usual effect.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // a background job may ignore the signal and keep running
			signal.Reset(s) // the log of raw times would end the process
			signal.Notify(signals, s)
		}
	}
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			number, _ := s.(syscall.Signal)
			cancel(cli.StatusError(128 + int(number)))
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil) }
}

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
	if status, ok := context.Cause(ctx).(cli.StatusError); ok { //nolint:errorlint // the cause is not wrapped
		return status
	}
	return nil
}
