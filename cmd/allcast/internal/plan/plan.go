// Package plan is the subcommand that tells what a network would gain from multicast.
package plan

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/plan"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

// Command is "allcast plan".
type Command struct {
	Topology      string         `placeholder:"SPEC"`
	Network       string         `placeholder:"FILE"`
	Rate          *units.Rate    `placeholder:"RATE"`
	Latency       *time.Duration `placeholder:"D"`
	Oversubscribe *float64       `placeholder:"K"`
	Placement     string         `placeholder:"P"`

	Params  string         `default:"7B" placeholder:"N"`
	Layers  int            `placeholder:"L"`
	DType   string         `name:"dtype" default:"bf16" placeholder:"T"`
	Shard   int            `placeholder:"N"`
	Compute *time.Duration `placeholder:"D"`

	Algo string `default:"ring+ring,mcast+ring,mcast+inc" placeholder:"LIST"`
	Seed uint64 `default:"1" placeholder:"S" help:"Seed of the random placement and of the simulations (default 1)."`
	HTML string `name:"html" placeholder:"FILE"`
}

// FlagHelp implements cli.FlagHelp.
func (Command) FlagHelp() map[string]string {
	return map[string]string{
		"topology":      cli.NetworkHelp["topology"] + " Or see --network.",
		"network":       "File that describes the network, one \"key value\" per line: " + plan.FileKeys() + ".",
		"rate":          "Rate of a host's link (default 100gbit).",
		"latency":       "Latency of a link, its switch included (default 500ns).",
		"oversubscribe": cli.NetworkHelp["oversubscribe"],
		"placement": "Host of each rank: " + topology.PlacementForms + " (default: both order and random:SEED, because " +
			"schedulers place ranks anywhere).",
		"params": "Parameters of the model, such as 7B, 70B or 350M (default 7B).",
		"layers": "Layers of the model (default: as of a Llama model of that size, 32 for 7B and 80 for 70B).",
		"dtype":  "Type of parameters and gradients: " + plan.DTypes + " (default bf16).",
		"shard":  "Ranks that share the parameters (default: all of them, which is the only choice so far).",
		"compute": fmt.Sprintf("Forward time of one layer; backward takes twice that (default: two operations per "+
			"parameter and token, for %d tokens per rank at %.0f Tflop/s).", plan.DefaultTokens, plan.DefaultSpeed/1e12),
		"algo": "Pairs of allgather and reduce-scatter to compare with ring+ring, separated by commas: " +
			strings.Join(sim.FSDPAlgorithms(), ", ") + " (default ring+ring,mcast+ring,mcast+inc).",
		"html": "Write a page with plots.",
	}
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `What would this network gain from multicast? The answer is for a training step of a fully sharded model:
its time by algorithm, the bytes on links, the oversubscription from which multicast pays off, and what switches need
for it.

Times come from the simulator. Large networks and deep models are scaled up from smaller simulations; such values are
marked with *. Counts come from the graph of the network. docs/plan.md explains both, and network files.

Examples:
  allcast plan --topology fat-tree:188,12,6
  allcast plan --topology fat-tree:1024,32,8 --oversubscribe 4 --params 70B --html plan.html`
}

// Run implements the command.
func (c *Command) Run(e *cli.Env) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	page, err := cli.CreateFile(c.HTML, "the page")
	if err != nil {
		return cli.Usagef("--html: %v", err)
	}
	defer page.Discard()
	line := cli.NewProgressLine(e, nil)
	cfg.Progress = func(done, all int) {
		line.Update(time.Now(), "plan", float64(done)/float64(max(all, done, 1)),
			fmt.Sprintf("%d of %d simulations or more", done, all))
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	p, err := plan.Make(ctx, cfg)
	line.Clear()
	if err != nil {
		return cmp.Or(cli.Interrupted(ctx), err)
	}
	if page != nil {
		if err := writePage(page, p); err != nil {
			return err
		}
		if err := page.Commit(); err != nil {
			return err
		}
	}
	if e.JSON {
		return e.PrintJSON(p)
	}
	return e.Print(text(p))
}

// config checks the flags.
func (c *Command) config() (cfg plan.Config, err error) {
	if cfg.Network, err = c.network(); err != nil {
		return cfg, err
	}
	if cfg.Placements, err = c.placements(cfg.Network.Graph.Hosts); err != nil {
		return cfg, err
	}
	ranks := len(cfg.Placements[0].Host)
	if cfg.Model, err = c.model(ranks); err != nil {
		return cfg, err
	}
	cfg.Seed, cfg.Algorithms = c.Seed, strings.Split(c.Algo, ",")
	valid := sim.FSDPAlgorithms()
	for i, name := range cfg.Algorithms {
		switch {
		case !slices.Contains(valid, name):
			return cfg, cli.Usagef("--algo: unknown pair %q; valid: %s", name, strings.Join(valid, ", "))
		case slices.Contains(cfg.Algorithms[:i], name):
			return cfg, cli.Usagef("--algo: %s is there twice", name)
		}
	}
	return cfg, nil
}

func (c *Command) placements(hosts int) (all []plan.Placement, err error) {
	names := []string{c.Placement}
	if c.Placement == "" {
		names = []string{"order", fmt.Sprintf("random:%d", c.Seed)}
	}
	for _, name := range names {
		p := plan.Placement{Name: name}
		if p.Host, err = topology.ParsePlacement(name, hosts, os.ReadFile); err != nil {
			return nil, cli.Usagef("--placement: %v", err)
		}
		all = append(all, p)
	}
	if len(all[0].Host) < 2 {
		return nil, cli.Usagef("a plan needs 2 ranks or more, and there is one")
	}
	return all, nil
}

func (c *Command) model(ranks int) (m plan.Model, err error) {
	m.DType, m.Layers = c.DType, c.Layers
	if m.Params, err = plan.ParseParams(c.Params); err != nil {
		return m, cli.Usagef("--params: %v", err)
	}
	if c.Layers == 0 {
		m.Layers = plan.DefaultLayers(m.Params)
	}
	switch {
	case c.Shard < 0 || c.Shard > ranks:
		return m, cli.Usagef("--shard %d: want the number of ranks, %d", c.Shard, ranks)
	case c.Shard > 0 && c.Shard < ranks:
		return m, cli.Usagef("--shard %d: hybrid sharding cannot be simulated yet, so all %d ranks share the parameters; "+
			"to plan for one replica alone, list its %d hosts in a file for --placement", c.Shard, ranks, c.Shard)
	case c.Compute != nil:
		m.Compute = *c.Compute
	default:
		m.Compute = plan.DefaultCompute(m.Params, max(1, m.Layers))
	}
	if err := m.Check(); err != nil {
		return m, cli.Usagef("the model has %v", err)
	}
	return m, nil
}
