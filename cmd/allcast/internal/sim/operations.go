package sim

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/units"
)

// operation describes an operation in help texts and tables.
type operation struct {
	bytes    string // meaning of --bytes
	examples []string
}

const seedSizes = "half of the largest size of a block; the seed determines the sizes of all blocks"

// operations holds all operations by name. Their algorithms are those of the simulator.
var operations = map[string]operation{
	"broadcast": {"what one rank sends", []string{
		"--topology fat-tree3:64,32 --bytes 8M --rate 200gbit",
		"--topology star:8 --bytes 64M --recv-queue 4M --stall 3@1ms+10ms --flow credit",
	}},
	"allgather": {"what one rank sends", []string{
		"--topology fat-tree:188,12,6 --bytes 64K --rate 56gbit",
		"--topology star:13 --chains 4 --subgroups 3 --bytes 100001 --loss 1% --reorder 5%",
		"--topology star:3 --counts 1M,0,4K",
	}},
	"reduce-scatter": {"what one rank receives", []string{
		"--topology fat-tree:64,8,4 --bytes 64K --algo ring,recursive-halving",
		"--topology fat-tree:16,4,2 --bytes 1M --algo inc --loss 1% --crash agg0@100us",
	}},
	"allreduce": {"the whole vector", []string{"--topology star:16 --bytes 1M --algo ring,recursive-halving"}},
	"barrier":   {"nothing", []string{"--topology fat-tree3:1024,32"}},
	"allgather+reduce-scatter": {"what one rank sends in the Allgather and receives in the Reduce-Scatter", []string{
		"--topology star:8 --bytes 1M --algo mcast+inc,ring+ring,mcast+ring,ring+inc",
	}},
	"gather":    {"what one rank sends", []string{"--topology star:16 --bytes 4K --algo linear,binomial"}},
	"gatherv":   {seedSizes, []string{"--topology star:16 --bytes 4K --root 3 --seed 7"}},
	"scatter":   {"what one rank receives", []string{"--topology star:16 --bytes 4K --algo linear,binomial"}},
	"scatterv":  {seedSizes, []string{"--topology star:16 --bytes 4K --root 3 --seed 7"}},
	"reduce":    {"the whole vector", []string{"--topology star:16 --bytes 1M --algo binomial,chain,ring"}},
	"alltoall":  {"what one rank sends to each rank", []string{"--topology star:32 --bytes 64 --algo pairwise,bruck"}},
	"alltoallv": {seedSizes, []string{"--topology fat-tree:64,8,4 --bytes 4K --loss-all 1%"}},
	"sendrecv":  {"one message", []string{"--topology star:2 --bytes 1M"}},
}

// help returns the help texts of an operation.
func (o operation) help(op string) cli.HelpTexts {
	algos := slices.Clone(sim.Algorithms[op])
	algos[0] += " (default)"
	if i := slices.Index(algos, "inc"); i > 0 {
		algos[i] += " (by aggregators in the switches)"
	}
	texts := cli.HelpTexts{
		Detail: "Examples:",
		Flags: map[string]string{
			"algo":  "Algorithms to compare, separated by commas: " + strings.Join(algos, ", ") + ".",
			"bytes": "Size: " + o.bytes + " (default 64K).",
		},
	}
	if !strings.Contains(op, "+") {
		texts.Flags["algo"] += " auto picks one and says why."
	}
	if len(o.examples) == 1 {
		texts.Detail = "Example:"
	}
	for _, e := range o.examples {
		texts.Detail += "\n  allcast sim " + op + " " + e
	}
	return texts
}

// The commands of all operations, by their flags. A plain command has no flags of multicast.
type (
	messageCmd struct {
		Bytes units.Size `default:"64K" placeholder:"SIZE"`
		flags
	}
	plainCmd struct {
		messageCmd
		Segment units.Size `default:"0" placeholder:"SIZE"`
	}
	plainRootedCmd struct {
		Root int `default:"0" placeholder:"RANK" help:"Rank of the root (default 0)."`
		plainCmd
	}
	sizedCmd struct {
		messageCmd
		multicastFlags
	}
	rootedCmd struct {
		Root int `default:"0" placeholder:"RANK" help:"Rank of the root (default 0)."`
		sizedCmd
	}
	barrierCmd struct {
		flags
		multicastFlags
	}
	allgatherCmd struct {
		// A pointer, because an explicit --bytes excludes --counts.
		Bytes  *units.Size  `placeholder:"SIZE"`
		Counts []units.Size `placeholder:"SIZE" help:"One size per rank, comma-separated (allgatherv), instead of --bytes."`
		flags
		multicastFlags
	}
)

// defaultBytes is the default of --bytes.
const defaultBytes units.Size = 64 << 10

// Run simulates the operation.
func (c *messageCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	return all.run(e, k, &c.flags, nil, sim.Config{Bytes: int64(c.Bytes)})
}

// Run simulates the operation.
func (c *plainCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	return all.run(e, k, &c.flags, nil, c.config(0))
}

// Run simulates the operation.
func (c *plainRootedCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	return all.run(e, k, &c.flags, nil, c.config(c.Root))
}

func (c *plainCmd) config(root int) sim.Config {
	return sim.Config{Bytes: int64(c.Bytes), Root: root, Schedule: sim.Schedule{Segment: int64(c.Segment)}}
}

// Run simulates the operation.
func (c *sizedCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	return all.run(e, k, &c.flags, &c.multicastFlags, sim.Config{Bytes: int64(c.Bytes)})
}

// Run simulates the operation.
func (c *rootedCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	return all.run(e, k, &c.flags, &c.multicastFlags, sim.Config{Bytes: int64(c.Bytes), Root: c.Root})
}

// Run simulates the operation.
func (c *barrierCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	return all.run(e, k, &c.flags, &c.multicastFlags, sim.Config{})
}

// Run simulates the operation.
func (c *allgatherCmd) Run(e *cli.Env, k *kong.Context, all *Command) error {
	cfg := sim.Config{Bytes: int64(defaultBytes)}
	if c.Bytes != nil {
		cfg.Bytes = int64(*c.Bytes)
	}
	for _, n := range c.Counts {
		cfg.Counts = append(cfg.Counts, int64(n))
	}
	if c.Counts != nil {
		if c.Bytes != nil {
			return cli.Usagef("--bytes and --counts cannot be used together: want one size for all ranks, or one for each")
		}
		cfg.Bytes = slices.Max(cfg.Counts) // the result reports the largest contribution
	}
	return all.run(e, k, &c.flags, &c.multicastFlags, cfg)
}
