package main

import (
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/topology"
)

type modelTrafficCmd struct {
	Topology string `required:"" placeholder:"SPEC" help:"Network: star:8, fat-tree:HOSTS,LEAVES,SPINES (fat-tree:188,12,6 is the paper's testbed) or fat-tree3:HOSTS,RADIX (fat-tree3:1024,32 is Figure 2's)."`
}

func (modelTrafficCmd) Help() string {
	return `How often a block (one rank's send buffer) crosses a link direction, over all blocks and links: the sends of each algorithm's real plan, times the links of their routes. Rank i is on host i; knomial has radix 4, a Broadcast root 0. With --json, a line with "model":"traffic" for each operation and algorithm.

Example:
  allcast model traffic --topology fat-tree3:1024,32`
}

func (c *modelTrafficCmd) Run(a *app) error {
	g, err := topology.Parse(c.Topology)
	if err != nil {
		return usagef("--topology: %v", err)
	}
	if g.Hosts > model.MaxTrafficHosts {
		return usagef("--topology: %d hosts are too many to count; want at most %d", g.Hosts, model.MaxTrafficHosts)
	}
	all, err := model.CountTraffic(g)
	if err != nil {
		return err
	}
	if !a.json {
		return trafficTable(g, all).print(a.stdout)
	}
	for _, t := range all {
		err := a.printJSON(struct {
			Model string `json:"model"`
			model.Traffic
		}{"traffic", t})
		if err != nil {
			return err
		}
	}
	return nil
}

func trafficTable(g *topology.Graph, all []model.Traffic) *table {
	var t table
	t.note("Figure 2: link traffic on %s, %d hosts, %d switches.", g.Name, g.Hosts, g.Switches())
	t.note("block_links: link directions crossed, summed over blocks; a block is one rank's send buffer.")
	t.note("ratio: to mcast of the same operation.")
	t.row("op", "algo", "block_links", "ratio")
	for _, x := range all {
		t.row(x.Op, x.Algo, x.BlockLinks, x.Ratio)
	}
	return &t
}
