package plan

import (
	"os"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// commands holds the subcommand that the tests of this package run.
type commands struct {
	cli.Flags
	Plan Command `cmd:""`
}

func TestMain(m *testing.M) { os.Exit(m.Run()) }

// command runs the command inside the test's process.
func command(args string) clitest.Outcome { return clitest.Run(&commands{}, strings.Fields(args)...) }
