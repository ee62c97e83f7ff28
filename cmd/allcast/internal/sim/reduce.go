package sim

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
)

type reduceScatterCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"What each rank receives (default 64K)."`
	flags
}

func (reduceScatterCmd) Help() string {
	return `Example:
  allcast sim reduce-scatter --topology fat-tree:64,8,4 --bytes 64K --algo ring,recursive-halving`
}

func (c *reduceScatterCmd) Run(e *cli.Env, all *Command) error {
	return c.runSized(e, all, "reduce-scatter", c.Bytes)
}

type allreduceCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"The size of the buffer that is summed (default 64K)."`
	flags
}

func (allreduceCmd) Help() string {
	return `Example:
  allcast sim allreduce --topology star:16 --bytes 1M --algo ring,recursive-halving`
}

func (c *allreduceCmd) Run(e *cli.Env, all *Command) error {
	return c.runSized(e, all, "allreduce", c.Bytes)
}

type barrierCmd struct {
	flags
}

func (barrierCmd) Help() string {
	return `Example:
  allcast sim barrier --topology fat-tree3:1024,32`
}

func (c *barrierCmd) Run(e *cli.Env, all *Command) error { return c.runSized(e, all, "barrier", 0) }

type bothCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"What each rank sends and what it receives (default 64K)."`
	flags
}

func (bothCmd) Help() string {
	return `Example:
  allcast sim allgather+reduce-scatter --topology star:8 --bytes 1M --algo mcast+inc,ring+ring,mcast+ring,ring+inc`
}

func (c *bothCmd) Run(e *cli.Env, all *Command) error {
	return c.runSized(e, all, "allgather+reduce-scatter", c.Bytes)
}

// runSized runs an operation whose only flag of its own is a size.
func (f *flags) runSized(e *cli.Env, all *Command, op string, bytes units.Size) error {
	cfg, err := f.config(op)
	if err != nil {
		return err
	}
	cfg.Bytes = int64(bytes)
	return all.run(e, cfg, f)
}
