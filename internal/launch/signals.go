//go:build unix

package launch

import (
	"os"
	"os/signal"
	"syscall"
)

// Notify returns the signals that this process gets and a job should have, for
// Config.Signals, and a function that ends it.
func Notify() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	for _, s := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT,
	} {
		// One that is ignored, as nohup does, is to stay so.
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c, func() { signal.Stop(c) }
}
