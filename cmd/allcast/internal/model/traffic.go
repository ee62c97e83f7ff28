package model

import (
	"maps"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

type trafficCmd struct {
	cli.NetworkFlags
	cli.RoutingFlag
	Bytes     units.Size  `default:"1M" placeholder:"SIZE" help:"Size of a block (default 1M)."`
	Rate      *units.Rate `placeholder:"RATE" help:"Rate of a host's link; reports times."`
	Subgroups *int        `placeholder:"S"`
}

// FlagHelp implements cli.FlagHelp.
func (trafficCmd) FlagHelp() map[string]string {
	texts := map[string]string{
		"routing": cli.RoutingHelp,
		"subgroups": "Multicast trees, each with its part of every block (default: as many as there are, one per spine, at " +
			"most 16).",
	}
	maps.Copy(texts, cli.NetworkHelp)
	return texts
}

func (trafficCmd) Help() string {
	return `Counts how often a block (the send buffer of one rank) crosses a link direction, over all blocks and links: the
sends of each algorithm's real plan, times the links of their routes. Knomial has radix 4, and the root of a
Broadcast is rank 0. With --json, there is one line with "model":"traffic" per operation and algorithm, which
also has the payload per tier: host_up, host_down, leaf_up (leaves to spines), leaf_down, and so on.

With --rate, it also reports time_us, the time of the transfer without latency, headers and barriers. Every step
of a plan takes as long as its busiest link. line_rate_share is the time that a host's link needs for what a
rank must receive, divided by time_us.

Examples:
  allcast model traffic --topology fat-tree3:1024,32
  allcast model traffic --topology fat-tree:64,8,2 --rate 100gbit --oversubscribe 4 --placement random:1`
}

func (c *trafficCmd) Run(e *cli.Env) error {
	g, load, err := c.workload()
	if err != nil {
		return err
	}
	all, err := model.MeasureTraffic(g, load)
	if err != nil {
		return cli.Usagef("--topology: %v", err)
	}
	if !e.JSON {
		return e.PrintTable(c.table(g, all))
	}
	type line struct {
		Model string `json:"model"`
		model.Traffic
		Oversubscribe float64 `json:"oversubscribe,omitempty"`
		Placement     string  `json:"placement,omitempty"`
		Routing       string  `json:"routing,omitempty"`
	}
	conditions := line{
		Model: "traffic", Placement: cli.Unless("order", c.Placement), Routing: cli.Unless("dmodk", c.Routing),
	}
	if c.Oversubscribe > 1 {
		conditions.Oversubscribe = c.Oversubscribe
	}
	return printJSON(e, all, func(t model.Traffic) any {
		l := conditions
		l.Traffic = t
		return l
	})
}

// workload checks the flags.
func (c *trafficCmd) workload() (*topology.Graph, model.Workload, error) {
	none := model.Workload{}
	g, err := c.Graph()
	if err != nil {
		return nil, none, err
	}
	if g, err = c.Apply(g); err != nil {
		return nil, none, err
	}
	load := model.Workload{Bytes: int64(c.Bytes), Subgroups: model.Trees(g)}
	switch {
	case c.Bytes < 1:
		return nil, none, cli.Usagef("--bytes %v: want 1 or more", c.Bytes)
	case c.Rate == nil && c.Oversubscribe != 1:
		return nil, none, cli.Usagef("--oversubscribe changes times only: give --rate as well")
	case c.Subgroups != nil && (*c.Subgroups < 1 || *c.Subgroups > model.MaxSubgroups):
		return nil, none, cli.Usagef("--subgroups %d: want 1 to %d", *c.Subgroups, model.MaxSubgroups)
	case c.Subgroups != nil:
		load.Subgroups = *c.Subgroups
	}
	if c.Rate != nil {
		load.Rate = float64(*c.Rate)
	}
	return g, load, nil
}

func (c *trafficCmd) table(g *topology.Graph, all []model.Traffic) *cli.Table {
	var t cli.Table
	t.Note("Figure 2: link traffic on %s, %d hosts, %d switches.", g.Name, g.Hosts, g.Switches())
	t.Note("block_links: link directions crossed, summed over blocks; a block is one rank's send buffer.")
	t.Note("ratio: relative to mcast of the same operation.")
	tiers := topology.TierNames(all[0].TierBytes)
	t.Note("Bytes of payload for blocks of %v: %s.", c.Bytes, strings.Join(tiers, ", "))
	header := []any{"op", "algo", "block_links", "ratio"}
	for _, tier := range tiers {
		header = append(header, tier)
	}
	if c.Rate != nil {
		t.Note("Host links of %v, oversubscribed %v:1, placement %s; times without latency and headers.",
			*c.Rate, c.Oversubscribe, c.Placement)
		header = append(header, "time_us", "line_rate_share")
	}
	t.Row(header...)
	for _, x := range all {
		row := []any{x.Op, x.Algo, x.BlockLinks, x.Ratio}
		for _, tier := range tiers {
			row = append(row, x.TierBytes[tier])
		}
		if c.Rate != nil {
			row = append(row, x.TimeUS, x.LineRateShare)
		}
		t.Row(row...)
	}
	return &t
}
