package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/alecthomas/kong"
)

// FlagHelp is implemented by commands with help texts that are too long for struct tags. Keys are names of flags and
// positional arguments.
type FlagHelp interface{ FlagHelp() map[string]string }

// Helper is implemented by types that several commands share, and knows the help texts of a command by its name. The
// texts of flags that the command does not have are ignored.
type Helper interface {
	HelpTexts(command string) HelpTexts
}

// HelpTexts are the help texts of one command.
type HelpTexts struct {
	Detail string            // text below the flags
	Flags  map[string]string // as in FlagHelp
}

// setFlagHelp sets the help texts of FlagHelp and Helper on a command and on its subcommands.
func setFlagHelp(node *kong.Node) error {
	if node.Target.CanAddr() {
		values := slices.Clone(node.Positional)
		for _, f := range node.Flags {
			values = append(values, f.Value)
		}
		switch c := node.Target.Addr().Interface().(type) {
		case FlagHelp:
			for name, text := range c.FlagHelp() {
				i := slices.IndexFunc(values, func(v *kong.Value) bool { return v.Name == name })
				if i < 0 {
					return fmt.Errorf("%s: help text for unknown flag %q", node.FullPath(), name)
				}
				values[i].Help = text
			}
		case Helper:
			texts := c.HelpTexts(node.Name)
			node.Detail = texts.Detail
			for _, v := range values {
				v.Help = cmp.Or(texts.Flags[v.Name], v.Help)
			}
		}
	}
	for _, child := range node.Children {
		if err := setFlagHelp(child); err != nil {
			return err
		}
	}
	return nil
}
