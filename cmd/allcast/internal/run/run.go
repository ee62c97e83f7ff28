// Package run is "allcast run": it starts ranks of any program, here or on other machines.
package run

import (
	"os"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/launch"
)

// Command is "allcast run".
type Command struct {
	Ranks     *int     `short:"n" placeholder:"RANKS" help:"Number of ranks; -np works too."`
	Hosts     string   `placeholder:"LIST" help:"Machines and their ranks, as in a:8,b:8 (default 1 rank each)."`
	HostFile  string   `name:"hostfile" placeholder:"FILE" help:"File with one machine per line: a:8, or a slots=8."`
	SSH       *string  `name:"ssh" placeholder:"COMMAND" help:"The ssh to use, with options (default ssh)."`
	KeepGoing bool     `help:"Let the other ranks go on when one fails."`
	Command   []string `arg:"" passthrough:"" placeholder:"COMMAND" help:"The program and its arguments."`
}

// NoJSON implements cli.NoJSON.
func (Command) NoJSON() {}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `Starts COMMAND once per rank. The environment of each rank has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR, MASTER_PORT and a fresh ALLCAST_KEY. Unless it is set already, GOMAXPROCS is the rank's share of the
processors. Each line of output begins with its rank. Signals are forwarded.

With --hosts or --hostfile, ranks fill one machine after the other, through ssh. ssh must not need a password. The
machines need this program, at the same path or in a directory of PATH, and the working directory. Ranks get the
environment of this process, except for variables that describe a machine or a login, such as HOME. The key
travels over ssh's standard input and is never on a command line. No rank starts before all machines have answered.
With -n, only the first RANKS ranks start.

The first rank that fails ends the others: they have one second to exit, then get SIGTERM, and three seconds
later SIGKILL. With --keep-going they go on, so that they can Shrink and finish. The exit status is that of the
first failed rank, or 1 if a signal ended it. Ranks read nothing from standard input.

Examples:
  allcast run -n 4 -- allcast perf allgather -b 1M
  allcast run -n 8 -- python train.py --epochs 3
  allcast run --hosts node1:8,node2:8 -- allcast perf allgather -b 1M`
}

const needs = "a command, as in: allcast run -n 4 -- PROGRAM ARGUMENTS"

// Arguments implements cli.Arguments.
func (Command) Arguments() (string, string) { return "a command", needs }

// Run starts the ranks and waits for them.
func (c *Command) Run(e *cli.Env) error {
	cfg := launch.Config{
		Command:   cli.Program(c.Command),
		Procs:     2, // a program that computes needs a second processor for the collective it waits for
		KeepGoing: c.KeepGoing,
		Failed: func(failure *launch.RankError) {
			if c.KeepGoing {
				e.Message("%v: the other ranks go on", failure)
			} else {
				e.Message("%v: ending the other ranks", failure)
			}
		},
	}
	hosts, err := c.hosts()
	switch {
	case err != nil:
		return err
	case hosts != nil && c.Ranks != nil:
		if hosts.List, err = launch.Fill(hosts.List, *c.Ranks); err != nil {
			return cli.Usagef("-n: %v", err)
		}
	case hosts == nil && c.Ranks == nil:
		return cli.Usagef("allcast run needs a number of ranks (-n, --ranks) or machines (--hosts, --hostfile)")
	case hosts == nil && c.SSH != nil:
		return cli.Usagef("--ssh has no effect without --hosts or --hostfile")
	case hosts == nil && (*c.Ranks < 1 || *c.Ranks > launch.MaxRanks):
		return cli.Usagef("-n %d: want 1 to %d ranks", *c.Ranks, launch.MaxRanks)
	case hosts == nil:
		cfg.Ranks = *c.Ranks
	}
	if len(cfg.Command) == 0 {
		return cli.Usagef("allcast run needs %s", needs)
	}
	return e.Launch(cfg, hosts)
}

// hosts reads the list of machines; nil if there is none.
func (c *Command) hosts() (*launch.Hosts, error) {
	var list []launch.Host
	var err error
	switch {
	case c.Hosts != "" && c.HostFile != "":
		return nil, cli.Usagef("--hosts and --hostfile: want one of them")
	case c.Hosts != "":
		if list, err = launch.ParseHosts(c.Hosts); err != nil {
			return nil, cli.Usagef("--hosts: %v", err)
		}
	case c.HostFile != "":
		f, err := os.Open(c.HostFile)
		if err != nil {
			return nil, cli.Usagef("--hostfile: %v", err)
		}
		defer func() { _ = f.Close() }()
		if list, err = launch.ReadHosts(f); err != nil {
			return nil, cli.Usagef("--hostfile %s: %v", c.HostFile, err)
		}
	default:
		return nil, nil //nolint:nilnil // no hosts are no error
	}
	ssh := "ssh"
	if c.SSH != nil {
		ssh = *c.SSH
	}
	return cli.Hosts(list, ssh)
}

// AgentCommand is "allcast agent", which RunHosts starts on each machine.
type AgentCommand struct{}

// NoJSON implements cli.NoJSON.
func (AgentCommand) NoJSON() {}

// Help implements kong.HelpProvider.
func (AgentCommand) Help() string {
	return `Starts ranks on this machine as its standard input says. "allcast run --hosts" starts it through ssh.

Example:
  allcast run --hosts node1:8,node2:8 -- allcast perf allgather`
}

// Run runs the agent.
func (AgentCommand) Run(e *cli.Env) error { return launch.Agent(os.Stdin, e.Stdout) }
