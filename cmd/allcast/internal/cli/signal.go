package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// UntilSignal returns a context that ends when the user interrupts the command. Its cause is then an exit status, that
// of a shell command that the signal ended; see Interrupted. The next signal has its usual effect.
func UntilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		if !signal.Ignored(s) { // a background job may ignore the signal and keep running
			signal.Reset(s) // an open File would end the process
			signal.Notify(signals, s)
		}
	}
	go func() {
		select {
		case s := <-signals:
			signal.Stop(signals)
			number, _ := s.(syscall.Signal)
			cancel(StatusError(128 + int(number)))
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Interrupted returns the exit status if a signal has ended the context of UntilSignal, or else nil.
func Interrupted(ctx context.Context) error {
	if status, ok := context.Cause(ctx).(StatusError); ok { //nolint:errorlint // the cause is not wrapped
		return status
	}
	return nil
}
