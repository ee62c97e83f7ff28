package paper

import (
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// table is a command table with this command only.
type table struct {
	cli.Flags

	Paper Command `cmd:""`
}

// As a process, the command has one entry that never ends, for tests of signals.
func TestMain(m *testing.M) { clitest.Main(m, &table{Paper: Command{entries: endless}}) }
