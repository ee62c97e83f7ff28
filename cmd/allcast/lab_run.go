package main

import (
	"errors"
	"time"

	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/launch"
)

type labRunCmd struct {
	labFlags
	Command []string `arg:"" optional:"" passthrough:"" placeholder:"COMMAND" help:"The program, and its arguments; allcast means this very program."`
}

func (labRunCmd) Help() string {
	return `Builds the network, runs COMMAND as one rank a host, prints what the switches' ports have counted meanwhile, and takes everything down, whatever happens. Ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, a fresh ALLCAST_KEY, ALLCAST_IFNAME and ALLCAST_GROUPS, and GOMAXPROCS for their share of the processors. What rank 0 writes to stdout is passed on, and what any writes to stderr; if a rank fails, all output is kept in files.

A super-packet has its headers counted once. With --loss, --loss-all or --duplicate the leaves cut super-packets up, so that single datagrams are lost.

Example:
  allcast lab run --topology fat-tree:16,4,2 --json -- allcast perf allgather --algo mcast -b 64K -n 10`
}

func (c *labRunCmd) Run(a *app) error {
	self, err := labSelf()
	if err != nil {
		return err
	}
	command, err := labCommand(c.Command)
	if err != nil {
		return err
	}
	if len(command) == 0 {
		return usagef("allcast lab run needs a command, as in: allcast lab run --topology %s -- PROGRAM ARGUMENTS", c.Topology)
	}
	if command[0] == "allcast" {
		// Ranks must all be of one version, and so is the lab.
		command = append([]string{self[0]}, command[1:]...)
	}
	job := lab.Job{Command: command, Self: self, Stdout: a.stdout, Stderr: a.stderr, Log: a.message}
	if _, err := lab.NewPlan(c.config()); err != nil {
		return labError(err)
	}
	if err := job.Check(); err != nil {
		return labError(err)
	}
	ctx, stop := labContext()
	defer stop()
	start := time.Now()
	l, err := lab.Up(ctx, c.config(), lab.Options{Self: self, Log: a.message})
	if err != nil {
		return labError(err)
	}
	a.message("%s is up after %.1f s", l.Plan.Graph.Name, time.Since(start).Seconds())
	counters, err := l.Run(ctx, job)
	if down := l.Down(); down != nil {
		a.message("taking the lab down: %v", down)
		err = errors.Join(err, statusError(statusFailed))
	}
	if ctx.Err() != nil {
		a.message("interrupted")
		return statusError(statusFailed)
	}
	if counters != nil {
		if err := a.labCounters(counters); err != nil {
			return err
		}
	}
	return labStatus(err)
}

// labStatus is that of the first rank that failed, which has said why.
func labStatus(err error) error {
	var rank *launch.RankError
	switch {
	case errors.As(err, &rank) && rank.Code > 0:
		return statusError(rank.Code)
	case errors.As(err, &rank):
		return statusError(statusFailed)
	}
	return labError(err)
}
