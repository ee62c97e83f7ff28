package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/allcast/allcast/internal/launch"
)

type runCmd struct {
	Ranks   int      `short:"n" required:"" placeholder:"RANKS" help:"Number of ranks, 1 to 1024."`
	Command []string `arg:"" passthrough:"" placeholder:"COMMAND" help:"The program, and its arguments."`
}

func (runCmd) Help() string {
	return `Starts COMMAND once a rank on this machine, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, a fresh ALLCAST_KEY and, unless it is set, GOMAXPROCS for its share of the processors in its environment. Each line of output begins with its rank. Signals are forwarded.

The first rank that fails ends the others: they have a second to end by themselves, then get SIGTERM, and three seconds later SIGKILL. Its exit status is that of the command; 1 if a signal ended it. Ranks read nothing from standard input.

Examples:
  allcast run -n 4 -- allcast perf allgather -b 1M
  allcast run -n 8 -- python train.py --epochs 3`
}

func (c *runCmd) Run(a *app) error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if c.Ranks < 1 || c.Ranks > launch.MaxRanks {
		return usagef("-n %d: want 1 to %d ranks", c.Ranks, launch.MaxRanks)
	}
	if len(command) == 0 {
		return usagef("allcast run needs a command, as in: allcast run -n 4 -- PROGRAM ARGUMENTS")
	}
	return a.launch(launch.Config{
		Ranks: c.Ranks, Command: command,
		Procs:  2, // a program that computes must leave one to what it waits for
		Failed: func(e *launch.RankError) { a.message("%v: ending the other ranks", e) },
	})
}

// launch runs local ranks until they end, with our output and our signals, and
// returns the status of the first that failed.
func (a *app) launch(cfg launch.Config) error {
	signals, stop := launch.Notify()
	defer stop()
	cfg.Stdout, cfg.Stderr, cfg.Signals = a.stdout, a.stderr, signals
	defer launch.Adopt()()
	err := launch.Run(context.Background(), cfg)
	var (
		rank  *launch.RankError
		start *launch.StartError
	)
	switch {
	case errors.As(err, &rank) && rank.Code > 0:
		return statusError(rank.Code)
	case errors.As(err, &rank):
		return statusError(statusFailed)
	case errors.As(err, &start):
		return usagef("cannot start the program: %v", start.Err)
	}
	return err
}

// self runs this very command again, as local ranks. What rank 0 prints is our
// output; the others have nothing to print.
func (a *app) self(ranks int, args []string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding ourselves: %w", err)
	}
	return a.launch(launch.Config{
		Ranks: ranks, Command: append([]string{exe}, args...),
		Prefix: func(rank int, stderr bool) string {
			if rank == 0 && !stderr {
				return ""
			}
			return fmt.Sprintf("[%d] ", rank)
		},
		Failed: func(e *launch.RankError) {
			// Who exits by itself has said why.
			if e.Code < 0 {
				a.message("%v", e)
			}
		},
	})
}
