package model

import (
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/topology"
)

type trafficCmd struct {
	Topology string `required:"" placeholder:"SPEC"`
}

// FlagHelp implements cli.FlagHelp.
func (trafficCmd) FlagHelp() map[string]string {
	return map[string]string{
		"topology": "Network: star:8, fat-tree:HOSTS,LEAVES,SPINES (fat-tree:188,12,6 is the paper's testbed) or " +
			"fat-tree3:HOSTS,RADIX (fat-tree3:1024,32 is Figure 2's).",
	}
}

func (trafficCmd) Help() string {
	return `Counts how often a block (the send buffer of one rank) crosses a link direction, over all blocks and links: the
sends of each algorithm's real plan, times the links of their routes. Rank i is on host i, knomial has radix
4, and the root of a Broadcast is rank 0. With --json, there is one line with "model":"traffic" per operation
and algorithm.

Example:
  allcast model traffic --topology fat-tree3:1024,32`
}

func (c *trafficCmd) Run(e *cli.Env) error {
	g, err := topology.Parse(c.Topology)
	if err != nil {
		return cli.Usagef("--topology: %v", err)
	}
	all, err := model.CountTraffic(g)
	if err != nil {
		return cli.Usagef("--topology: %v", err)
	}
	if !e.JSON {
		return e.PrintTable(trafficTable(g, all))
	}
	type line struct {
		Model string `json:"model"`
		model.Traffic
	}
	return printJSON(e, all, func(t model.Traffic) any { return line{"traffic", t} })
}

func trafficTable(g *topology.Graph, all []model.Traffic) *cli.Table {
	var t cli.Table
	t.Note("Figure 2: link traffic on %s, %d hosts, %d switches.", g.Name, g.Hosts, g.Switches())
	t.Note("block_links: link directions crossed, summed over blocks; a block is one rank's send buffer.")
	t.Note("ratio: relative to mcast of the same operation.")
	t.Row("op", "algo", "block_links", "ratio")
	for _, x := range all {
		t.Row(x.Op, x.Algo, x.BlockLinks, x.Ratio)
	}
	return &t
}
