package main

import (
	"github.com/allcast/allcast/cmd/allcast/internal/aggregator"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/demo"
	"github.com/allcast/allcast/cmd/allcast/internal/doctor"
	"github.com/allcast/allcast/cmd/allcast/internal/inspect"
	"github.com/allcast/allcast/cmd/allcast/internal/lab"
	"github.com/allcast/allcast/cmd/allcast/internal/model"
	"github.com/allcast/allcast/cmd/allcast/internal/paper"
	"github.com/allcast/allcast/cmd/allcast/internal/perf"
	"github.com/allcast/allcast/cmd/allcast/internal/plan"
	"github.com/allcast/allcast/cmd/allcast/internal/run"
	"github.com/allcast/allcast/cmd/allcast/internal/send"
	"github.com/allcast/allcast/cmd/allcast/internal/sim"
)

// commands is the command table: one field per subcommand.
type commands struct {
	cli.Flags

	Demo    demo.Command    `cmd:"" help:"See it work: Broadcast and Allgather over multicast, verified."`
	Run     run.Command     `cmd:"" help:"Start ranks of any program, here or on other machines through ssh."`
	Perf    perf.Command    `cmd:"" help:"Measure and verify an operation on the real network."`
	Doctor  doctor.Command  `cmd:"" help:"Check what this machine and network can do, and how to fix what is missing."`
	Send    send.Command    `cmd:"" help:"Send files to many machines at once."`
	Recv    send.Recv       `cmd:"" help:"Receive the files that allcast send sends."`
	Inspect inspect.Command `cmd:"" help:"Show what running or hanging ranks are doing, and which ranks they wait for."`
	Sim     sim.Command     `cmd:"" help:"Run a collective on a simulated network, in virtual time."`
	Plan    plan.Command    `cmd:"" help:"See what a network would gain from multicast."`
	Model   model.Command   `cmd:"" help:"Evaluate the paper's models."`
	Lab     lab.Command     `cmd:"" help:"Build a real network on one machine, with counters at every port (Linux, root)."`

	Paper paper.Command `cmd:"" help:"Reproduce every claim, figure and table of the paper."`

	Aggregator aggregator.Command `cmd:"" help:"Add up the contributions to reductions next to a switch."`

	Completion cli.Completion `cmd:"" help:"Print a script for completion in bash, zsh or fish."`

	Agent run.AgentCommand `cmd:"" hidden:"" help:"Start the ranks of this machine for allcast run --hosts."`

	Version versionCmd `cmd:"" help:"Print the version."`
}

func (commands) Help() string {
	return `Sizes: 4096, 4K or 4KiB (binary), 8M, 1G. Rates: 200mbit, 1gbit, 100gbit.
Durations: 500ns, 10us, 1.5s. Probabilities: 0.1% or 0.001.

Exit status: 0 done and verified; 1 the job failed; 2 usage or bad input; 3 data was wrong.

Examples:
  allcast demo
  allcast perf allgather --ranks 8 --algo mcast,ring
  allcast sim allgather --topology fat-tree:188,12,6 --bytes 64K --rate 56gbit`
}
