package sim

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/units"
)

type broadcastCmd struct {
	Bytes units.Size `default:"64K" placeholder:"SIZE" help:"What the root sends (default 64K)."`
	Root  int        `default:"0" placeholder:"RANK" help:"The rank that sends (default 0)."`
	flags
}

func (broadcastCmd) Help() string {
	return `Examples:
  allcast sim broadcast --topology fat-tree3:64,32 --bytes 8M --rate 200gbit
  allcast sim broadcast --topology star:8 --bytes 64M --recv-queue 4M --stall 3@1ms+10ms --flow credit`
}

func (c *broadcastCmd) Run(e *cli.Env, all *Command) error {
	cfg, err := c.config("broadcast")
	if err != nil {
		return err
	}
	if err := checkRank("root", c.Root, cfg.Topology.Hosts); err != nil {
		return err
	}
	cfg.Bytes = int64(c.Bytes)
	cfg.Root = c.Root
	return all.run(e, cfg, &c.flags)
}
