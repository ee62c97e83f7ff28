package launch

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify returns a channel for Config.Signals with the signals that concern a job, and a function that
// stops the delivery.
func Notify() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
	} {
		// A signal that is ignored, as under nohup, stays ignored.
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}
