package lab

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/aggregator"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/perf"
)

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Lab        Command            `cmd:""`
	Perf       perf.Command       `cmd:""`
	Aggregator aggregator.Command `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }
