package cli

import (
	"fmt"
	"slices"

	"github.com/alecthomas/kong"
)

// FlagHelp is implemented by commands with help texts that are too long for struct tags. Keys are names of flags and
// positional arguments.
type FlagHelp interface{ FlagHelp() map[string]string }

// setFlagHelp sets the help texts of FlagHelp on a command and on its subcommands.
func setFlagHelp(node *kong.Node) error {
	if node.Target.CanAddr() {
		if c, ok := node.Target.Addr().Interface().(FlagHelp); ok {
			values := slices.Clone(node.Positional)
			for _, f := range node.Flags {
				values = append(values, f.Value)
			}
			for name, text := range c.FlagHelp() {
				i := slices.IndexFunc(values, func(v *kong.Value) bool { return v.Name == name })
				if i < 0 {
					return fmt.Errorf("%s: help text for unknown flag %q", node.FullPath(), name)
				}
				values[i].Help = text
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
