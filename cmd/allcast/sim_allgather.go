package main

import (
	"slices"

	"github.com/allcast/allcast/internal/units"
)

// defaultBytes is what one rank sends when nothing is said.
const defaultBytes units.Size = 64 << 10

type simAllgatherCmd struct {
	// A pointer tells an explicit --bytes, which contradicts --counts, from the default.
	Bytes  *units.Size  `placeholder:"SIZE" help:"What each rank sends (default 64K)."`
	Counts []units.Size `placeholder:"SIZE" help:"A size for each rank, separated by commas (allgatherv), instead of --bytes."`
	simFlags
}

func (simAllgatherCmd) Help() string {
	return `Examples:
  allcast sim allgather --topology fat-tree:188,12,6 --bytes 64K --rate 56gbit
  allcast sim allgather --topology star:13 --chains 4 --subgroups 3 --bytes 100001 --loss 1% --reorder 5%
  allcast sim allgather --topology star:3 --counts 1M,0,4K`
}

func (c *simAllgatherCmd) Run(a *app) error {
	cfg, err := c.config("allgather")
	if err != nil {
		return err
	}
	cfg.Bytes = int64(defaultBytes)
	if c.Bytes != nil {
		cfg.Bytes = int64(*c.Bytes)
	}
	if c.Counts != nil {
		if c.Bytes != nil {
			return usagef("--bytes and --counts cannot be used together: want one size for all ranks, or one for each")
		}
		if hosts := cfg.Topology.Hosts; len(c.Counts) != hosts {
			return usagef("--counts: %d sizes for %d ranks; want one for each", len(c.Counts), hosts)
		}
		for _, n := range c.Counts {
			cfg.Counts = append(cfg.Counts, int64(n))
		}
		cfg.Bytes = slices.Max(cfg.Counts) // what the result reports: the most that one rank sends
	}
	return a.runSim(cfg, &c.simFlags)
}
