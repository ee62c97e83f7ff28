package demo

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// commands holds the subcommands that the tests of this package run.
type commands struct {
	cli.Flags
	Demo Command `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &commands{}) }
