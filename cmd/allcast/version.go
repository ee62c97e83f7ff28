package main

import "github.com/allcast/allcast/cmd/allcast/internal/cli"

type versionCmd struct{}

func (versionCmd) Help() string { return "Example:\n  allcast version --json" }

func (versionCmd) Run(e *cli.Env) error {
	return e.PrintVersion()
}
