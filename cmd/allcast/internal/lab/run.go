package lab

import (
	"errors"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/lab"
)

type runCmd struct {
	networkFlags
	Command []string `arg:"" optional:"" passthrough:"" placeholder:"COMMAND" help:"The command; allcast is this program."`
}

func (runCmd) Help() string {
	return `Builds the network, runs COMMAND as one rank per host, prints the counters of the switch ports for that time,
and takes everything down, whatever happens. Ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT, a fresh ALLCAST_KEY, ALLCAST_IFNAME, ALLCAST_GROUPS and ALLCAST_COMM_GROUPS, and
GOMAXPROCS for their share of the processors. Stdout of rank 0 and stderr of all ranks are passed on; if a
rank fails, all output is kept in files.

The headers of a super-packet count once. With --loss, --loss-all or --duplicate the leaves split
super-packets, so that single datagrams are lost.

Example:
  allcast lab run --topology fat-tree:16,4,2 --json -- allcast perf allgather --algo mcast -b 64K -n 10 -w 0`
}

func (c *runCmd) Run(e *cli.Env) error {
	self, err := self()
	if err != nil {
		return err
	}
	command, err := program(c.Command)
	if err != nil {
		return err
	}
	if len(command) == 0 {
		return cli.Usagef("allcast lab run needs a command, as in: allcast lab run --topology %s -- PROGRAM ARGUMENTS",
			c.Topology)
	}
	if command[0] == "allcast" {
		// All ranks must have the same version as the lab.
		command = append([]string{self[0]}, command[1:]...)
	}
	job := lab.Job{Command: command, Self: self, Stdout: e.Stdout, Stderr: e.Stderr, Log: e.Message}
	if _, err := lab.NewPlan(c.config()); err != nil {
		return asUsage(err)
	}
	if err := job.Check(); err != nil {
		return asUsage(err)
	}
	ctx, stop := signalContext()
	defer stop()
	start := time.Now()
	l, err := lab.Up(ctx, c.config(), lab.Options{Self: self, Log: e.Message})
	if err != nil {
		return asUsage(err)
	}
	e.Message("%s is up after %.1f s", l.Plan.Graph.Name, time.Since(start).Seconds())
	counters, err := l.Run(ctx, job)
	if down := l.Down(); down != nil {
		e.Message("taking the lab down: %v", down)
		err = errors.Join(err, cli.StatusError(cli.StatusFailed))
	}
	if ctx.Err() != nil {
		e.Message("interrupted")
		return cli.StatusError(cli.StatusFailed)
	}
	if counters != nil {
		if err := printCounters(e, counters); err != nil {
			return err
		}
	}
	return asUsage(cli.RankFailure(err))
}
