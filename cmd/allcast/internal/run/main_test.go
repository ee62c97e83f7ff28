package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/lab"
	"github.com/allcast/allcast/cmd/allcast/internal/perf"
)

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Run   Command      `cmd:""`
	Agent AgentCommand `cmd:""`
	Perf  perf.Command `cmd:""`
	Lab   lab.Command  `cmd:""`

	Shrinker shrinker `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }

// shrinker is a rank of a job whose last rank fails. The others shrink, and exchange their ranks.
type shrinker struct{}

func (shrinker) Run(e *cli.Env) error {
	ctx := context.Background()
	comm, err := allcast.Join(ctx, allcast.Options{NoCalibration: true})
	if err != nil {
		return err
	}
	defer func() { _ = comm.Close() }()
	if comm.Rank() == comm.Size()-1 {
		os.Exit(7) // without Close
	}
	if err := comm.Barrier(ctx); !errors.Is(err, allcast.ErrRankLost) {
		return fmt.Errorf("the barrier of a lost rank: %w", err)
	}
	rest, err := comm.Shrink(ctx)
	if err != nil {
		return err
	}
	all := make([]byte, rest.Size())
	if err := rest.Allgather(ctx, []byte{byte(comm.Rank())}, all); err != nil {
		return err
	}
	if !bytes.Equal(all, []byte{0, 1}) {
		return cli.StatusError(cli.StatusWrong)
	}
	return e.Print(fmt.Sprintf("survived as one of %d\n", rest.Size()))
}
