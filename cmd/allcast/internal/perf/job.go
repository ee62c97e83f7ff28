package perf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/launch"
	"github.com/allcast/allcast/internal/reduce"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

// maxSubgroups is the library's limit. Larger values are clamped.
const maxSubgroups = 64

// job holds the checked flags.
type job struct {
	bench.Job
	fabricFlags
	algos []string
	sizes []int64
	raw   string // log of the times of every rank and iteration; empty for none
}

// job checks the flags. Its errors are usage errors that list the valid values.
func (c *Command) job(ranks int) (*job, error) {
	if !slices.Contains(operations, c.Operation) {
		return nil, cli.Usagef("unknown operation %q; valid: %s", c.Operation, strings.Join(operations, ", "))
	}
	algos, err := checkAlgos(c.Operation, c.Algo)
	if err = cmp.Or(err, c.checkFabric(), c.checkNumbers(), c.checkRanks(ranks)); err != nil {
		return nil, err
	}
	j := &job{
		Job: bench.Job{
			Op: c.Operation, OSU: c.OSU, Check: c.Check == 1, Root: c.Root,
			Chains: 1, ByRack: c.ChainBy == "rack", Subgroups: min(c.Subgroups, maxSubgroups),
			InPlace: c.InPlace, Overlap: c.Overlap,
		},
		fabricFlags: c.fabricFlags, algos: algos, sizes: []int64{0},
	}
	j.Schedule(c.Iters, c.Warmup)
	if c.Operation == bench.Pair {
		// All ranks multicast at a time, each at a low rate: a single root would have only a part of its link left for the
		// reduction, and all other ranks would wait for it.
		j.Chains = ranks
	}
	if c.Chains != nil {
		j.Chains = *c.Chains
	}
	if c.Chunk != nil {
		j.Chunk = int(*c.Chunk)
	}
	if c.Raw != nil {
		j.raw, j.Raw = *c.Raw, true
	}
	if j.DType, err = allcast.ParseDataType(c.DType); err != nil {
		return nil, cli.Usagef("--dtype: %s", strings.TrimPrefix(err.Error(), "allcast: "))
	}
	if j.Reduce, err = allcast.ParseReduceOp(c.Reduce); err != nil {
		return nil, cli.Usagef("--reduce: %s", strings.TrimPrefix(err.Error(), "allcast: "))
	}
	if err := reduce.Into(nil, nil, reduce.Type(j.DType), reduce.Op(j.Reduce)); err != nil {
		return nil, cli.Usagef("--reduce: %v", err)
	}
	if c.Operation != "barrier" {
		j.sizes, err = c.sizes()
		j.round()
	}
	return j, err
}

// checkFabric refuses fabrics that this program was not built with, and flags that exclude each other.
func (c *fabricFlags) checkFabric() error {
	switch {
	case c.Fabric == settings.Verbs && !settings.HasVerbs:
		return cli.Usagef("--fabric verbs: %s", settings.BuildVerbs)
	case c.Fabric != "" && c.Fabric != settings.IP && c.Fabric != settings.Verbs:
		return cli.Usagef("--fabric %s: unknown fabric; valid: ip, verbs", c.Fabric)
	case c.Device != "" && c.Fabric == settings.IP:
		return cli.Usagef("--device %s: devices belong to --fabric verbs", c.Device)
	case c.Secure && c.Fabric == settings.Verbs:
		return cli.Usagef("--secure: the fabric verbs does not support encryption")
	}
	return c.checkDatapath()
}

// checkDatapath also reads the environment, as the ranks do.
func (c *fabricFlags) checkDatapath() error {
	if c.Datapath == "" {
		c.Datapath = settings.Process.Get("ALLCAST_DATAPATH")
	}
	if c.Hook == "" {
		c.Hook = settings.Process.Get("ALLCAST_HOOK")
	}
	err := settings.CheckHook(c.Hook)
	switch {
	case !slices.Contains([]string{"", "host", "bpf", "auto"}, c.Datapath):
		return cli.Usagef("--datapath %s: unknown datapath; valid: host, bpf, auto", c.Datapath)
	case err != nil:
		return cli.Usagef("--hook: %v", err)
	case c.Hook != "" && c.Datapath != "bpf" && c.Datapath != "auto":
		return cli.Usagef("--hook %s: hooks belong to --datapath bpf or auto", c.Hook)
	case c.Datapath == "bpf" && c.Fabric == settings.Verbs:
		return cli.Usagef("--datapath bpf: data on the fabric verbs bypasses the kernel; use --datapath host, or --fabric ip")
	case c.Datapath == "bpf" && (c.Secure || c.Integrity):
		return cli.Usagef("--datapath bpf: the kernel can neither decrypt (--secure) nor verify checksums (--integrity); " +
			"use --datapath host")
	}
	return nil
}

func (c *Command) checkNumbers() error {
	switch {
	case c.Iters != nil && *c.Iters < 1:
		return cli.Usagef("-n %d: want 1 or more iterations", *c.Iters)
	case c.Warmup != nil && *c.Warmup < 0:
		return cli.Usagef("-w %d: want 0 or more iterations", *c.Warmup)
	case c.Raw != nil && *c.Raw == "":
		return cli.Usagef("--raw: want the name of a file")
	case c.Check != 0 && c.Check != 1:
		return cli.Usagef("-c %d: want 0 or 1", c.Check)
	case c.Factor < 2:
		return cli.Usagef("-f %d: want 2 or more", c.Factor)
	case c.Chains != nil && *c.Chains < 1:
		return cli.Usagef("--chains %d: want 1 or more", *c.Chains)
	case c.ChainBy != "rank" && c.ChainBy != "rack":
		return cli.Usagef("--chain-by %q: want rank or rack", c.ChainBy)
	case c.Subgroups < 1:
		return cli.Usagef("--subgroups %d: want 1 or more", c.Subgroups)
	case c.Chunk != nil && (*c.Chunk < 1 || *c.Chunk > ip.MaxLong):
		return cli.Usagef("--chunk %v: want 1 to %v", *c.Chunk, units.Size(ip.MaxLong))
	}
	return nil
}

func (c *Command) checkRanks(ranks int) error {
	if ranks < 1 || ranks > launch.MaxRanks {
		return cli.Usagef("--ranks %d: want 1 to %d", ranks, launch.MaxRanks)
	}
	if c.Root < 0 || c.Root >= ranks {
		return cli.Usagef("--root %d: no such rank; want 0 to %d", c.Root, ranks-1)
	}
	if c.OSU && c.Operation == "broadcast" && ranks == 1 {
		return cli.Usagef("--osu: times a broadcast on its leaves, and one rank alone has none; want 2 ranks or more")
	}
	return nil
}

// meanings explains the sizes of an operation, unless a rank sends what the paper calls N.
var meanings = map[string]string{
	"reduce-scatter": "bytes is N of the paper: what one rank receives",
	bench.Pair:       "bytes is N of the paper: what one rank sends in the Allgather and receives in the Reduce-Scatter",
	"allreduce":      "bytes is what one rank contributes, and receives",
	"barrier":        "a Barrier moves no bytes",
}

func (j *job) String() string {
	s := j.Op
	if j.Reduces() {
		s = fmt.Sprintf("%s of %v, %v", s, j.DType, j.Reduce)
	}
	if j.Secure {
		s += ", encrypted"
	}
	if j.Integrity {
		s += ", with integrity checks"
	}
	return s
}
