package lab

import (
	"errors"
	"os"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/lab"
)

type upCmd struct{ networkFlags }

// NoJSON implements cli.NoJSON.
func (upCmd) NoJSON() {}

func (upCmd) Help() string {
	return `Builds the network and leaves it up until "allcast lab down". A process stays in the background, because the
kernel drops multicast routes when the process that added them ends. With --inc, the aggregators stay as well;
their output is in /run/allcast-lab-NAME.SWITCH.log. With --background, the traffic of other jobs stays, too.

Example:
  allcast lab up --topology fat-tree:8,2,2 --rate 200mbit`
}

func (c *upCmd) Run(e *cli.Env) error {
	self, err := self()
	if err != nil {
		return err
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	ctx, stop := signalContext()
	defer stop()
	start := time.Now()
	opt := options(e, self)
	opt.Stay = true
	line := cli.NewProgressLine(e, nil)
	opt.Progress = func(share float64) { line.Update(time.Now(), "lab up", share, cfg.Topology+" is being built") }
	l, err := lab.Up(ctx, cfg, opt)
	line.Clear()
	if err != nil {
		return asUsage(err)
	}
	e.Message("%s is up after %.1f s: %s is %v; try \"allcast lab exec %[3]s -- COMMAND\"",
		l.Plan.Graph.Name, time.Since(start).Seconds(), l.Plan.Nodes[0].Name, l.Plan.HostAddr(0))
	return l.Release()
}

type downCmd struct{ nameFlag }

// NoJSON implements cli.NoJSON.
func (downCmd) NoJSON() {}

func (downCmd) Help() string {
	return `Takes down a lab that is up or running, or the remains of one that was killed, with all processes in it.

Example:
  allcast lab down`
}

func (c *downCmd) Run(e *cli.Env) error {
	ctx, stop := signalContext() // a signal must not stop this halfway
	defer stop()
	found, err := lab.Down(c.Name)
	if err == nil && !found {
		e.Message("there is no lab named %s", c.Name)
	}
	if ctx.Err() != nil && err == nil {
		return cli.StatusError(cli.StatusFailed)
	}
	return asUsage(err)
}

// holdCmd is the background process that keeps the multicast routes; see lab.Hold.
type holdCmd struct {
	Name string `arg:""`
}

func (c *holdCmd) Run(*cli.Env) error { return lab.Hold(c.Name, os.Stdin, os.Stdout) }

// enterCmd is the process that becomes a rank; see lab.Enter.
type enterCmd struct {
	Name    string   `arg:""`
	Command []string `arg:"" passthrough:""`
}

func (c *enterCmd) Run(*cli.Env) error {
	command := cli.Program(c.Command)
	if len(command) == 0 {
		return errors.New("no command")
	}
	return lab.Enter(c.Name, command)
}
