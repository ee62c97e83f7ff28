package main

import (
	"errors"
	"os"
	"time"

	"github.com/allcast/allcast/internal/lab"
)

type labUpCmd struct {
	labFlags
}

func (labUpCmd) Help() string {
	return `Builds the network and leaves it up, until "allcast lab down". A process stays with it: the kernel drops multicast routes when the one that entered them ends.

Example:
  allcast lab up --topology fat-tree:8,2,2 --rate 200mbit`
}

func (c *labUpCmd) Run(a *app) error {
	self, err := labSelf()
	if err != nil {
		return err
	}
	ctx, stop := labContext()
	defer stop()
	start := time.Now()
	l, err := lab.Up(ctx, c.config(), lab.Options{Self: self, Stay: true, Log: a.message})
	if err != nil {
		return labError(err)
	}
	a.message("%s is up after %.1f s: host0 is %v; try \"allcast lab exec host0 -- COMMAND\"", l.Plan.Graph.Name, time.Since(start).Seconds(), l.Plan.HostAddr(0))
	return l.Release()
}

type labDownCmd struct{ labName }

func (labDownCmd) Help() string {
	return `Takes down a lab that is up, one that is running, or what is left of one that was killed, with everything that runs in it.

Example:
  allcast lab down`
}

func (c *labDownCmd) Run(a *app) error {
	ctx, stop := labContext() // not to be stopped half-way
	defer stop()
	found, err := lab.Down(c.Name)
	if err == nil && !found {
		a.message("there is no lab named %s", c.Name)
	}
	if ctx.Err() != nil && err == nil {
		return statusError(statusFailed)
	}
	return labError(err)
}

// labHoldCmd keeps the multicast routes; see lab.Hold.
type labHoldCmd struct {
	Name string `arg:""`
}

func (c *labHoldCmd) Run(*app) error { return lab.Hold(c.Name, os.Stdin, os.Stdout) }

// labEnterCmd becomes a rank; see lab.Enter.
type labEnterCmd struct {
	Name    string   `arg:""`
	Master  string   `arg:""`
	Command []string `arg:"" passthrough:""`
}

func (c *labEnterCmd) Run(*app) error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("no command")
	}
	return lab.Enter(c.Name, c.Master, command)
}
