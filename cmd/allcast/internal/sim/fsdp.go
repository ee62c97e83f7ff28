package sim

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/units"
)

type fsdpCmd struct {
	networkFlags
	Algo    string        `default:"ring+ring,mcast+ring,mcast+inc" placeholder:"LIST"`
	Rate    units.Rate    `default:"100gbit" placeholder:"RATE"`
	Latency time.Duration `default:"500ns" placeholder:"D" help:"Latency of a link, its switch included (default 500ns)."`

	Layers     int           `default:"32" placeholder:"L" help:"Layers of the model (default 32)."`
	LayerBytes units.Size    `default:"437500000" placeholder:"SIZE"`
	Compute    time.Duration `default:"20ms" placeholder:"D"`
	Prefetch   int           `default:"1" placeholder:"N"`

	Chunk *units.Size `placeholder:"SIZE"`
	Seed  uint64      `default:"1" placeholder:"S" help:"What everything random comes from (default 1)."`
	HTML  string      `name:"html" placeholder:"FILE"`
}

// FlagHelp implements cli.FlagHelp.
func (fsdpCmd) FlagHelp() map[string]string {
	texts := map[string]string{
		"algo": "Pairs of allgather and reduce-scatter to compare, separated by commas: mcast+inc, ring+ring, " +
			"mcast+ring, ring+inc (default ring+ring,mcast+ring,mcast+inc). Speed-ups are over the first. inc needs " +
			"aggregators in the network.",
		"rate": "Rate of a host's link (default 100gbit); links between switches run at the multiple that makes the tree " +
			"non-blocking, divided by --oversubscribe.",
		"layer-bytes": "Parameters of one layer, all shards together (default 437500000: 7e9 parameters of 2 bytes in 32 " +
			"layers).",
		"compute": "Forward time of one layer; backward takes twice that (default 20ms, which is some 7000 tokens a rank " +
			"at 150 Tflop/s. A layer takes 35ms on a link of 100gbit: more than forward, so communication matters, but less " +
			"than backward, so it depends on the algorithms whether it can be hidden there).",
		"prefetch": "Layers gathered ahead of the one being computed (default 1).",
		"chunk": "Payload of one packet (default: coarse, by the size of the model and the network, so that a run takes " +
			"seconds; see above).",
		"html": "Draw the timelines of rank 0: one page that needs nothing else.",
	}
	maps.Copy(texts, networkTexts())
	return texts
}

func (fsdpCmd) Help() string {
	return `One training step of a fully sharded model. Forward: a layer is computed once its parameters are
gathered, while the next layers are gathered. Backward, from the last layer on: the parameters are gathered
again (except the last layer's), the layer is computed, and its gradients are reduced and scattered while
other layers are gathered and computed. The optimizer is left out. Allgathers and reduce-scatters have one
communicator each, which runs one operation at a time, in order. Both run at once, over the same links.
Multicast uses one tree per spine, up to 16.

A step moves hundreds of gigabytes, so this is a scale model: packets are coarse, 256K on 64 ranks, and so are
the buffers of the switches, four packets or more. Times are bytes over rates. The packet size hardly changes
them while a shard has many packets; try it with --chunk.

Example:
  allcast sim fsdp --topology fat-tree:64,8,4 --html step.html`
}

func (c *fsdpCmd) Run(e *cli.Env) error {
	cfg, algos, err := c.config()
	if err != nil {
		return err
	}
	page, err := cli.CreateFile(c.HTML, "the page")
	if err != nil {
		return cli.Usagef("--html: %v", err)
	}
	defer page.Discard()
	results, err := simulateSteps(cfg, algos)
	if errors.Is(err, sim.ErrConfig) {
		return cli.Usagef("%v", err)
	}
	if err != nil {
		return err
	}
	if page != nil {
		if err := drawSteps(page, results); err != nil {
			return err
		}
		if err := page.Commit(); err != nil {
			return err
		}
	}
	if err := printSteps(e, results); err != nil {
		return err
	}
	return stepVerdict(e, results)
}

func stepVerdict(e *cli.Env, results []*sim.FSDPResult) error {
	return worst(results, func(r *sim.FSDPResult) int { return verdict(e, r.Subject, r.Verdict, r.Errors) })
}

// config checks the flags and returns the simulator's configuration.
func (c *fsdpCmd) config() (cfg sim.FSDPConfig, algos []string, err error) {
	if err := c.applyNetwork(&cfg.Config); err != nil {
		return cfg, nil, err
	}
	valid := sim.FSDPAlgorithms()
	algos = strings.Split(c.Algo, ",")
	for _, name := range algos {
		if !slices.Contains(valid, name) {
			return cfg, nil, cli.Usagef("--algo: unknown pair %q; valid for fsdp: %s", name, strings.Join(valid, ", "))
		}
	}
	switch {
	case c.Layers < 1:
		return cfg, nil, cli.Usagef("--layers %d: want 1 or more", c.Layers)
	case c.LayerBytes < 1:
		return cfg, nil, cli.Usagef("--layer-bytes %v: want 1 or more", c.LayerBytes)
	case c.Prefetch < 0:
		return cfg, nil, cli.Usagef("--prefetch %d: want 0 or more", c.Prefetch)
	case c.Compute < 0 || c.Compute > maxDuration:
		return cfg, nil, cli.Usagef("--compute: %v is out of range; want 0s to %v", c.Compute, maxDuration)
	case c.Latency < 0 || c.Latency > maxDuration:
		return cfg, nil, cli.Usagef("--latency: %v is out of range; want 0s to %v", c.Latency, maxDuration)
	case c.Chunk != nil && (*c.Chunk < 1 || *c.Chunk > model.MaxChunk):
		return cfg, nil, cli.Usagef("--chunk %v: want 1 to %v", *c.Chunk, units.Size(model.MaxChunk))
	}
	cfg.Rate, cfg.Latency, cfg.Seed = float64(c.Rate), c.Latency, c.Seed
	cfg.Layers, cfg.LayerBytes, cfg.Compute, cfg.Prefetch = c.Layers, int64(c.LayerBytes), c.Compute, c.Prefetch
	if c.Chunk != nil {
		cfg.Chunk = int(*c.Chunk)
	}
	return cfg, algos, nil
}

// simulateSteps runs the pairs in parallel, one per processor at a time.
func simulateSteps(cfg sim.FSDPConfig, algos []string) ([]*sim.FSDPResult, error) {
	results, errs := make([]*sim.FSDPResult, len(algos)), make([]error, len(algos))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i, algo := range algos {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			mine := cfg
			mine.Algo = algo
			results[i], errs[i] = sim.RunFSDP(mine)
		})
	}
	wait.Wait()
	return results, errors.Join(errs...)
}
