package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// parseFailure makes a usage error of what the parser found, with the names
// that would have been right: Kong only suggests similar ones.
func parseFailure(err error) error {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return &usageError{msg: err.Error()}
	}
	node := parse.Context.Selected()
	if node == nil {
		node = parse.Context.Model.Node
	}
	msg := err.Error()
	switch {
	case strings.HasPrefix(msg, "unknown flag"):
		msg += "; valid: " + strings.Join(flagNames(node), ", ")
	case strings.HasPrefix(msg, "unexpected argument") && node.Name == "perf":
		msg += "; " + node.FullPath() + " takes one operation, and flags"
	case strings.HasPrefix(msg, "unexpected argument") && node.Name == "inspect":
		msg += "; " + node.FullPath() + " takes one process, and flags"
	case strings.HasPrefix(msg, "unexpected argument") && len(node.Children) == 0:
		msg += "; " + node.FullPath() + " takes flags only"
	case strings.HasPrefix(msg, "unexpected argument"):
		msg += "; valid: " + strings.Join(commandNames(node), ", ")
	case strings.HasPrefix(msg, "expected ") && node.Name == "perf":
		msg = node.FullPath() + " needs an operation: " + strings.Join(perfOperations, ", ")
	case strings.HasPrefix(msg, "expected ") && node.Name == "run":
		msg = node.FullPath() + " needs a command, as in: allcast run -n 4 -- PROGRAM ARGUMENTS"
	case strings.HasPrefix(msg, "expected "):
		msg = node.FullPath() + " needs one of: " + strings.Join(commandNames(node), ", ")
	case strings.HasPrefix(msg, "missing flags") && strings.Contains(msg, "--topology"):
		msg += "; valid: " + topologyForms
	}
	return &usageError{msg: msg, see: node.FullPath() + " --help"}
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

// usagef is a usage error about a flag's value, found after parsing.
func usagef(format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...)}
}
