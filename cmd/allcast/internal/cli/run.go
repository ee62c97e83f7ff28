// Package cli holds what the subcommands share: parsing, output, exit status, files and local ranks.
package cli

import (
	"fmt"
	"io"

	"github.com/alecthomas/kong"
)

// Env is the outside world of a subcommand.
type Env struct {
	Stdout, Stderr io.Writer
	JSON           bool
	Args           []string // the whole command line; local ranks of perf repeat it
}

// Flags are valid for every subcommand. The command table embeds them.
type Flags struct {
	JSON bool `name:"json" help:"Print one JSON object per line on stdout and nothing else there."`
}

func (f *Flags) flags() *Flags { return f }

// CommandTable is a pointer to a struct that embeds Flags and has one field per subcommand.
type CommandTable interface{ flags() *Flags }

// parserExit carries the exit status through the panic that replaces Kong's os.Exit, for example after --help.
type parserExit int

// Run parses args, runs the chosen subcommand and returns the exit status of the process.
func Run(table CommandTable, args []string, stdout, stderr io.Writer) (status int) {
	defer func() {
		if v := recover(); v != nil {
			code, ok := v.(parserExit)
			if !ok {
				panic(v)
			}
			status = int(code)
		}
	}()
	parser, err := kong.New(table,
		kong.Name("allcast"),
		kong.Description("Collective communication on network multicast: every byte crosses every link once."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { panic(parserExit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		// A negative number is then a bad value with its own message, not an unknown flag.
		kong.WithHyphenPrefixedParameters(true),
		kong.PostBuild(func(k *kong.Kong) error { return setFlagHelp(k.Model.Node) }),
	)
	if err != nil {
		panic(fmt.Sprintf("invalid command table: %v", err))
	}
	env := &Env{Stdout: stdout, Stderr: stderr, Args: args}
	ctx, err := parser.Parse(args)
	if err != nil {
		return env.exitStatus(parseFailure(err))
	}
	env.JSON = table.flags().JSON
	return env.exitStatus(ctx.Run(env))
}
