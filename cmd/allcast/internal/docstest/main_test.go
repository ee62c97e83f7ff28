// Package docstest runs the commands of the documentation on hosts of a lab.
package docstest

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/doctor"
	"github.com/allcast/allcast/cmd/allcast/internal/lab"
	"github.com/allcast/allcast/cmd/allcast/internal/perf"
	"github.com/allcast/allcast/cmd/allcast/internal/run"
)

// networkVar asks for these tests, which take long.
const networkVar = "ALLCAST_TEST_NETWORK"

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Lab    lab.Command      `cmd:""`
	Run    run.Command      `cmd:""`
	Agent  run.AgentCommand `cmd:""`
	Perf   perf.Command     `cmd:""`
	Doctor doctor.Command   `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }
