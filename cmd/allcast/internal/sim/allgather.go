package sim

import (
	"slices"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
)

// defaultBytes is the default of --bytes.
const defaultBytes units.Size = 64 << 10

type allgatherCmd struct {
	// A pointer, because an explicit --bytes excludes --counts.
	Bytes  *units.Size  `placeholder:"SIZE" help:"What each rank sends (default 64K)."`
	Counts []units.Size `placeholder:"SIZE" help:"One size per rank, comma-separated (allgatherv), instead of --bytes."`
	flags
}

func (allgatherCmd) Help() string {
	return `Examples:
  allcast sim allgather --topology fat-tree:188,12,6 --bytes 64K --rate 56gbit
  allcast sim allgather --topology star:13 --chains 4 --subgroups 3 --bytes 100001 --loss 1% --reorder 5%
  allcast sim allgather --topology star:3 --counts 1M,0,4K`
}

func (c *allgatherCmd) Run(e *cli.Env, all *Command) error {
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
			return cli.Usagef("--bytes and --counts cannot be used together: want one size for all ranks, or one for each")
		}
		if hosts := cfg.Topology.Hosts; len(c.Counts) != hosts {
			return cli.Usagef("--counts: %d sizes for %d ranks; want one for each", len(c.Counts), hosts)
		}
		for _, n := range c.Counts {
			cfg.Counts = append(cfg.Counts, int64(n))
		}
		cfg.Bytes = slices.Max(cfg.Counts) // the result reports the largest contribution
	}
	return all.run(e, cfg, &c.flags)
}
