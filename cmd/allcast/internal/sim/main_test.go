package sim

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/sim"
)

// table holds the subcommands that the tests of this package run.
type table struct {
	cli.Flags
	Sim Command `cmd:""`
}

func TestMain(m *testing.M) { clitest.Main(m, &table{}) }

// command runs the command inside the test's process.
func command(args string) clitest.Outcome { return clitest.Run(&table{}, strings.Fields(args)...) }

// outcome also holds the configurations that the simulator got.
type outcome struct {
	clitest.Outcome
	configs []sim.Config
}

// execute runs the command with a simulator that only answers.
func execute(answer func(sim.Config) (*sim.Result, error), args ...string) (o outcome) {
	all := &table{Sim: Command{simulate: func(cfg sim.Config) (*sim.Result, error) {
		o.configs = append(o.configs, cfg)
		return answer(cfg)
	}}}
	o.Outcome = clitest.Run(all, args...)
	return o
}

// fine is a simulator whose collectives all succeed.
func fine(cfg sim.Config) (*sim.Result, error) {
	return &sim.Result{
		Subject: sim.Subject{Op: cfg.Op, Algo: cfg.Algo, Nodes: cfg.Topology.Hosts, Topology: cfg.Topology.Name},
		Bytes:   cfg.Bytes, Seed: cfg.Seed, Flow: cfg.Flow,
		Errors: []sim.RankError{}, Traffic: sim.Traffic{MaxCrossings: 1}, Verdict: sim.Verdict{Verified: true},
	}, nil
}
