package cli

import (
	"errors"
	"strings"

	"github.com/alecthomas/kong"
)

// TopologyForms lists what --topology takes. topology.Parse lists the forms too, but it only runs if the flag is given.
const TopologyForms = "star:HOSTS, fat-tree:HOSTS,LEAVES,SPINES, fat-tree3:HOSTS,RADIX"

// Arguments is implemented by commands with positional arguments: what the command takes at most and needs at least.
type Arguments interface{ Arguments() (takes, needs string) }

// GivenFlags lists the names of the flags on the command line.
func GivenFlags(k *kong.Context) (names []string) {
	for _, p := range k.Path {
		if p.Flag != nil {
			names = append(names, p.Flag.Name)
		}
	}
	return names
}

// NoJSON is implemented by commands that print no result of their own.
type NoJSON interface{ NoJSON() }

// checkJSON refuses --json where it would have no effect.
func checkJSON(ctx *kong.Context, f *Flags) error {
	node := ctx.Selected()
	if !f.JSON || node == nil || !node.Target.CanAddr() {
		return nil
	}
	if _, ok := node.Target.Addr().Interface().(NoJSON); ok {
		return &UsageError{
			Msg: "--json has no effect: " + node.FullPath() + " prints no result of its own", See: node.FullPath() + " --help",
		}
	}
	return nil
}

// parseFailure turns the parser's error into a usage error that lists the valid names. Kong only suggests similar ones.
func parseFailure(err error) error {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return &UsageError{Msg: err.Error()}
	}
	node := parse.Context.Selected()
	if node == nil {
		node = parse.Context.Model.Node
	}
	takes, needs := arguments(node)
	msg := err.Error()
	switch {
	case strings.HasPrefix(msg, "unknown flag"):
		msg += "; valid: " + strings.Join(flagNames(node), ", ")
	case strings.HasPrefix(msg, "unexpected argument") && len(node.Children) == 0:
		msg += "; " + node.FullPath() + " takes " + takes
	case strings.HasPrefix(msg, "unexpected argument"):
		msg += "; valid: " + strings.Join(commandNames(node), ", ")
	case strings.HasPrefix(msg, "expected "):
		msg = node.FullPath() + " needs " + needs
	case strings.HasPrefix(msg, "missing flags") && strings.Contains(msg, "--topology"):
		msg += "; valid: " + TopologyForms
	}
	return &UsageError{Msg: msg, See: node.FullPath() + " --help"}
}

func arguments(node *kong.Node) (takes, needs string) {
	if node.Target.CanAddr() {
		if c, ok := node.Target.Addr().Interface().(Arguments); ok {
			return c.Arguments()
		}
	}
	return "flags only", "one of: " + strings.Join(commandNames(node), ", ")
}

func flagNames(node *kong.Node) (names []string) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			names = append(names, "--"+f.Name)
		}
	}
	return names
}

func commandNames(node *kong.Node) (names []string) {
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	return names
}
