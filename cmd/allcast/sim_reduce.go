package main

import "github.com/allcast/allcast/internal/units"

type simReduceScatterCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"What each rank receives (default 64K)."`
	simFlags
}

func (simReduceScatterCmd) Help() string {
	return `Example:
  allcast sim reduce-scatter --topology fat-tree:64,8,4 --bytes 64K --algo ring,recursive-halving`
}

func (c *simReduceScatterCmd) Run(a *app) error { return c.run(a, "reduce-scatter", c.Bytes) }

type simAllreduceCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"The size of the buffer that is summed (default 64K)."`
	simFlags
}

func (simAllreduceCmd) Help() string {
	return `Example:
  allcast sim allreduce --topology star:16 --bytes 1M --algo ring,recursive-halving`
}

func (c *simAllreduceCmd) Run(a *app) error { return c.run(a, "allreduce", c.Bytes) }

type simBarrierCmd struct {
	simFlags
}

func (simBarrierCmd) Help() string {
	return `Example:
  allcast sim barrier --topology fat-tree3:1024,32`
}

func (c *simBarrierCmd) Run(a *app) error { return c.run(a, "barrier", 0) }

type simBothCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"What each rank sends in the allgather and receives in the reduce-scatter (default 64K)."`
	simFlags
}

func (simBothCmd) Help() string {
	return `Example:
  allcast sim allgather+reduce-scatter --topology star:8 --bytes 1M --algo mcast+inc,ring+ring,mcast+ring,ring+inc`
}

func (c *simBothCmd) Run(a *app) error { return c.run(a, "allgather+reduce-scatter", c.Bytes) }

// run is the whole of an operation that has no flags of its own but a size.
func (f *simFlags) run(a *app, op string, bytes units.Size) error {
	cfg, err := f.config(op)
	if err != nil {
		return err
	}
	cfg.Bytes = int64(bytes)
	return a.runSim(cfg, f)
}
