package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/lab"
)

type runCmd struct {
	networkFlags
	Baseline string   `placeholder:"COMMAND" help:"Also run this command, first, and print its bytes as a baseline."`
	Command  []string `arg:"" optional:"" passthrough:"" placeholder:"COMMAND" help:"Command; allcast is this program."`
}

func (runCmd) Help() string {
	return `Builds the network, runs COMMAND as one rank per host, prints the counters of the switch ports for that time,
and takes everything down, whatever happens. Ranks get RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT, a fresh ALLCAST_KEY, ALLCAST_IFNAME, ALLCAST_GROUPS and ALLCAST_COMM_GROUPS, and
GOMAXPROCS for their share of the processors. Stdout of rank 0 and stderr of all ranks are passed on; if a
rank fails, all output is kept in files.

With --inc, aggregators run in the switches of a tree: all leaves with hosts, and one spine above them. Of
several spines, it is the one of the last multicast tree. Ranks also get ALLCAST_AGGREGATORS and
ALLCAST_SITE_KEY_FILE. Warnings of the aggregators follow the output of the ranks, with the name of the switch
before each line.

The counters include how ranks join, and the barriers of perf. --baseline runs another command first, in the same
network. The difference of link_bytes and baseline_link_bytes is what only COMMAND did. A perf with -n N -c 0
makes one barrier per iteration, as many as a perf barrier with -n N/2 and a fixed --algo.

Rank r runs on host r, unless --placement says otherwise; hosts keep their names and addresses. --background sends
traffic of other jobs until the lab is down. Ports count it in rx and tx, but not in mcast_rx and mcast_tx, and
background_bytes is how much was sent.

The headers of a super-packet count once. With --loss or --duplicate the leaves split super-packets of UDP,
so that single datagrams are lost; with --inc, all ports do. With --loss-all, they split those of TCP as well.

Examples:
  allcast lab run --topology fat-tree:16,4,2 --json -- allcast perf allgather --algo mcast -b 64K -n 10 -w 0
  allcast lab run --topology fat-tree:188,12,6 --json \
      --baseline "allcast perf barrier --algo recursive-doubling -n 20 -w 0" -- \
      allcast perf broadcast --algo mcast -b 64K -n 40 -w 0 -c 0`
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
	job := lab.Job{
		Command: sameVersion(command, self), Self: self, Stdout: e.Stdout, Stderr: e.Stderr, Log: e.Message,
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if err := cli.CheckKey(); err != nil {
		return err
	}
	if err := job.Check(); err != nil {
		return asUsage(err)
	}
	if c.Baseline != "" && len(strings.Fields(c.Baseline)) == 0 {
		return cli.Usagef("--baseline needs a command, as in: --baseline \"allcast perf barrier --algo recursive-doubling\"")
	}
	ctx, stop := signalContext()
	defer stop()
	start := time.Now()
	l, err := lab.Up(ctx, cfg, options(e, self))
	if err != nil {
		return asUsage(err)
	}
	e.Message("%s is up after %.1f s", l.Plan.Graph.Name, time.Since(start).Seconds())
	counters, err := c.run(ctx, l, job)
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

// run runs the baseline, if there is one, and the command.
func (c *runCmd) run(ctx context.Context, l *lab.Lab, job lab.Job) (*lab.Counters, error) {
	var baseline *lab.Counters
	if c.Baseline != "" {
		other := job
		other.Command, other.Stdout = sameVersion(strings.Fields(c.Baseline), job.Self), io.Discard
		var err error
		if baseline, err = l.Run(ctx, other); err != nil {
			return nil, fmt.Errorf("the baseline: %w", err)
		}
	}
	counters, err := l.Run(ctx, job)
	if counters != nil && baseline != nil {
		counters.BaselineLinkBytes, counters.BaselineMcastLinkBytes = baseline.LinkBytes, baseline.McastLinkBytes
	}
	return counters, err
}

// sameVersion makes allcast this program: all ranks must have the same version as the lab.
func sameVersion(command, self []string) []string {
	if command[0] != "allcast" {
		return command
	}
	return append([]string{self[0]}, command[1:]...)
}
