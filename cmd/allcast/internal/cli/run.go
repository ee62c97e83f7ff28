// Package cli holds what the subcommands share: parsing, output, exit status, files and local ranks.
package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

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
	JSON    bool        `name:"json" help:"Print one JSON object per line on stdout and nothing else there."`
	Version versionFlag `name:"version" help:"Print the version."`
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
	env := &Env{Stdout: stdout, Stderr: stderr, Args: args}
	parser, err := kong.New(table,
		kong.Bind(env),
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
	if len(args) > 0 && args[0] == completeCommand {
		return env.exitStatus(env.printCandidates(parser.Model, args[1:]))
	}
	ctx, err := parser.Parse(acceptNP(args))
	if err != nil {
		return env.exitStatus(parseFailure(err))
	}
	env.JSON = table.flags().JSON
	if err := checkJSON(ctx, table.flags()); err != nil {
		return env.exitStatus(err)
	}
	return env.exitStatus(ctx.Run(env))
}

// acceptNP replaces -np, as mpirun has it, by -n in the flags of "allcast run". The parser would take it for -n p.
func acceptNP(args []string) []string {
	if len(args) == 0 || args[0] != "run" {
		return args
	}
	args = slices.Clone(args)
	for i := 1; i < len(args) && strings.HasPrefix(args[i], "-") && args[i] != "--"; i++ {
		switch name, _, hasValue := strings.Cut(args[i], "="); {
		case name == "-np":
			args[i] = "-n" + strings.TrimPrefix(args[i], "-np")
			if !hasValue {
				i++
			}
		case hasValue, name == "--keep-going", name == "--json", name == "--help", name == "-h":
		default:
			i++ // its value
		}
	}
	return args
}
