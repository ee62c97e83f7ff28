package sim

import (
	"fmt"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// showProgress makes a simulation show its progress if people read stderr.
func (c *Command) showProgress(e *cli.Env, cfg *sim.Config) *cli.ProgressLine {
	line := cli.NewProgressLine(e, c.isTerminal)
	if line == nil {
		return nil
	}
	what := fmt.Sprintf("%s (%s)", cfg.Op, cfg.Algo)
	cfg.Progress = func(s sim.Progress) {
		line.Update(time.Now(), what, s.Share, fmt.Sprintf("%v simulated", s.Time.Round(time.Microsecond)))
	}
	return line
}
