// Package run is "allcast run": it starts local ranks of any program.
package run

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/launch"
)

// Command is "allcast run".
type Command struct {
	Ranks   int      `short:"n" required:"" placeholder:"RANKS" help:"Number of ranks, 1 to 1024."`
	Command []string `arg:"" passthrough:"" placeholder:"COMMAND" help:"The program and its arguments."`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Starts COMMAND once per rank on this machine. The environment of each rank has RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and a fresh ALLCAST_KEY. Unless it is set already,
GOMAXPROCS is the rank's share of the processors. Each line of output begins with its rank. Signals are
forwarded.

The first rank that fails ends the others: they have one second to exit, then get SIGTERM, and three seconds
later SIGKILL. The exit status is that of the first failed rank, or 1 if a signal ended it. Ranks read nothing
from standard input.

Examples:
  allcast run -n 4 -- allcast perf allgather -b 1M
  allcast run -n 8 -- python train.py --epochs 3`
}

const needs = "a command, as in: allcast run -n 4 -- PROGRAM ARGUMENTS"

// Arguments implements cli.Arguments.
func (Command) Arguments() (string, string) { return "a command", needs }

// Run starts the ranks and waits for them.
func (c *Command) Run(e *cli.Env) error {
	program := cli.Program(c.Command)
	if c.Ranks < 1 || c.Ranks > launch.MaxRanks {
		return cli.Usagef("-n %d: want 1 to %d ranks", c.Ranks, launch.MaxRanks)
	}
	if len(program) == 0 {
		return cli.Usagef("allcast run needs %s", needs)
	}
	return e.Launch(launch.Config{
		Ranks: c.Ranks, Command: program,
		Procs:  2, // a program that computes needs a second processor for the collective it waits for
		Failed: func(failure *launch.RankError) { e.Message("%v: ending the other ranks", failure) },
	})
}
