package main

import (
	"fmt"

	"github.com/alecthomas/kong"
	"github.com/allcast/allcast/internal/wire"
)

// cli is the command line: a field a subcommand.
type cli struct {
	JSON bool `name:"json" help:"Print one JSON object a line on stdout, and nothing else there."`

	Demo    demoCmd    `cmd:"" help:"The main job in one go: Broadcast and Allgather over multicast, verified."`
	Run     runCmd     `cmd:"" help:"Start local ranks of any program."`
	Perf    perfCmd    `cmd:"" help:"Measure and verify a collective on the real network."`
	Doctor  doctorCmd  `cmd:"" help:"What this machine and network can do, and how to mend what they cannot."`
	Inspect inspectCmd `cmd:"" help:"What running or hanging ranks are at, and whom they wait for."`
	Sim     simCmd     `cmd:"" help:"Run a collective on a simulated network, in virtual time."`
	Model   modelCmd   `cmd:"" help:"The paper's models."`
	Lab     labCmd     `cmd:"" help:"A real network on one machine, with counters at every port (Linux, root)."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func (cli) Help() string {
	return `Sizes: 4096, 4K or 4KiB (binary), 8M, 1G. Rates: 200mbit, 1gbit, 100gbit. Durations: 500ns, 10us, 1.5s. Probabilities: 0.1% or 0.001.

Exit status: 0 done and verified; 1 the job failed; 2 usage or bad input; 3 data was wrong.

Examples:
  allcast demo
  allcast perf allgather --ranks 8 --algo mcast,ring
  allcast sim allgather --topology fat-tree:188,12,6 --bytes 64K --rate 56gbit`
}

// stop carries the status out of the parser when it has nothing left to do, as
// after --help: Kong expects its Exit not to return.
type stop int

func (a *app) run(args []string) (status int) {
	defer func() {
		if v := recover(); v != nil {
			code, ok := v.(stop)
			if !ok {
				panic(v)
			}
			status = int(code)
		}
	}()
	var c cli
	parser, err := kong.New(&c,
		kong.Name("allcast"),
		kong.Description("Collective communication on network multicast: every byte crosses every link once."),
		kong.Writers(a.stdout, a.stderr),
		kong.Exit(func(code int) { panic(stop(code)) }),
		kong.Vars{"psn_bits": fmt.Sprintf("%d to %d (default %d)", wire.MinPSNBits, wire.MaxPSNBits, wire.DefaultPSNBits)},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		// A negative number is then a bad value with a message of its own, not an unknown flag.
		kong.WithHyphenPrefixedParameters(true),
	)
	if err != nil {
		panic(fmt.Sprintf("the command line's own declaration: %v", err))
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return a.fail(parseFailure(err))
	}
	a.json, a.args = c.JSON, args
	return a.fail(ctx.Run(a))
}
