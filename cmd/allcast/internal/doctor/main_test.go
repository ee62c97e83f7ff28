package doctor

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/lab"
	"github.com/allcast/allcast/cmd/allcast/internal/perf"
	"github.com/allcast/allcast/cmd/allcast/internal/run"
)

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Doctor Command      `cmd:""`
	Perf   perf.Command `cmd:""`
	Lab    lab.Command  `cmd:""`

	Run   run.Command      `cmd:""`
	Agent run.AgentCommand `cmd:""`
	Query queryCmd         `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }
