package aggregator

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/inspect"
)

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Aggregator Command         `cmd:""`
	Inspect    inspect.Command `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }
