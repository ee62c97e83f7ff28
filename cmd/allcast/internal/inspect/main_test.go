package inspect

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/perf"
)

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Inspect Command      `cmd:""`
	Perf    perf.Command `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }

// command runs the command inside the test's process.
func command(args string) clitest.Outcome { return clitest.Run(&table{}, strings.Fields(args)...) }
