package cli

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/allcast/allcast/internal/launch"
)

// Launch runs local ranks until all have ended. It passes on their output and forwards signals to them.
func (e *Env) Launch(cfg launch.Config) error {
	signals, stop := launch.Notify()
	defer stop()
	cfg.Stdout, cfg.Stderr, cfg.Signals = e.Stdout, e.Stderr, signals
	defer launch.Adopt()()
	err := launch.Run(context.Background(), cfg)
	if start, ok := errors.AsType[*launch.StartError](err); ok {
		return Usagef("cannot start the program: %v", start.Err)
	}
	return RankFailure(err)
}

// LaunchSelf runs this program again as local ranks. Rank 0 prints the results; the others print nothing on stdout.
func (e *Env) LaunchSelf(ranks int, args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the path of this program: %w", err)
	}
	return e.Launch(launch.Config{
		Ranks: ranks, Command: append([]string{exe}, args...),
		Prefix: func(rank int, stderr bool) string {
			if rank == 0 && !stderr {
				return ""
			}
			return fmt.Sprintf("[%d] ", rank)
		},
		Failed: func(failure *launch.RankError) {
			// A rank that exited has already printed the reason; one that a signal ended has not.
			if failure.Code < 0 {
				e.Message("%v", failure)
			}
		},
	})
}

// RankFailure replaces the failure of a rank, which is already known to the user, by its exit status.
func RankFailure(err error) error {
	if rank, ok := errors.AsType[*launch.RankError](err); ok {
		return StatusError(max(rank.Code, StatusFailed)) // the code is -1 if a signal ended the rank
	}
	return err
}

// Program removes the "--" in front of a command line.
func Program(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}
