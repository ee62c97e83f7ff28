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

// defaultBuffers is the number of buffers, as in OSU's benchmark of the bandwidth.
const defaultBuffers = 64

// job holds the checked flags.
type job struct {
	bench.Job
	fabricFlags
	algos []string
	sizes []int64
	both  bool   // also measure in place
	raw   string // log of the times of every rank and iteration; empty for none

	meaning string // meaning of the sizes
}

// job checks the flags. Its errors are usage errors that list the valid values.
func (c *Command) job(op *bench.Operation, ranks int) (*job, error) {
	algos, err := checkAlgos(op, c.Algo)
	if err != nil {
		return nil, err
	}
	if err = cmp.Or(c.checkFabric(), c.checkNumbers(), c.checkFlags(op, algos), c.checkRanks(op, ranks)); err != nil {
		return nil, err
	}
	if err = c.checkAggregation(algos); err != nil {
		return nil, err
	}
	j := &job{
		Job: bench.Job{
			Op: op.Name, OSU: c.OSU, Check: c.Check == 1, Root: value(c.Root, 0),
			ByRack: value(c.ChainBy, "") == "rack", Subgroups: min(value(c.Subgroups, 0), maxSubgroups),
			Chunk: int(value(c.Chunk, 0)), InPlace: c.InPlace, Overlap: c.Overlap, Subsets: c.Subsets, Buffers: 1,
		},
		fabricFlags: c.fabricFlags, algos: algos, sizes: []int64{0}, both: c.Both, meaning: op.Size,
	}
	j.Schedule(c.Iters, c.Warmup)
	if op.Name == bench.Pair {
		// All ranks multicast at a time, each at a low rate: a single root would have only a part of its link left for the
		// reduction, and all other ranks would wait for it.
		j.Chains = ranks
	}
	j.Chains = value(c.Chains, j.Chains)
	if op.Takes("--buffers") {
		j.Buffers = value(c.Buffers, defaultBuffers)
	}
	if c.Raw != nil {
		j.raw, j.Raw = *c.Raw, true
	}
	if j.DType, err = allcast.ParseDataType(value(c.DType, "f32")); err != nil {
		return nil, cli.Usagef("--dtype: %s", strings.TrimPrefix(err.Error(), "allcast: "))
	}
	if j.Reduce, err = allcast.ParseReduceOp(value(c.Reduce, "sum")); err != nil {
		return nil, cli.Usagef("--reduce: %s", strings.TrimPrefix(err.Error(), "allcast: "))
	}
	if err := reduce.Into(nil, nil, reduce.Type(j.DType), reduce.Op(j.Reduce)); err != nil {
		return nil, cli.Usagef("--reduce: %v", err)
	}
	if op.Takes("-b") {
		j.sizes, err = c.sizes()
		j.round()
	}
	return j, err
}

// value returns the value of a flag, or its default.
func value[T any](flag *T, otherwise T) T {
	if flag == nil {
		return otherwise
	}
	return *flag
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
	case c.Factor != nil && *c.Factor < 2:
		return cli.Usagef("-f %d: want 2 or more", *c.Factor)
	case c.Buffers != nil && *c.Buffers < 1:
		return cli.Usagef("--buffers %d: want 1 or more", *c.Buffers)
	case c.Both && c.InPlace:
		return cli.Usagef("--inplace: --both measures in place too")
	case c.Both && c.Raw != nil:
		return cli.Usagef("--raw: the log cannot tell the measurements of --both apart")
	case c.Chains != nil && *c.Chains < 1:
		return cli.Usagef("--chains %d: want 1 or more", *c.Chains)
	case c.ChainBy != nil && *c.ChainBy != "rank" && *c.ChainBy != "rack":
		return cli.Usagef("--chain-by %q: want rank or rack", *c.ChainBy)
	case c.Subgroups != nil && *c.Subgroups < 1:
		return cli.Usagef("--subgroups %d: want 1 or more", *c.Subgroups)
	case c.Chunk != nil && (*c.Chunk < 1 || *c.Chunk > ip.MaxLong):
		return cli.Usagef("--chunk %v: want 1 to %v", *c.Chunk, units.Size(ip.MaxLong))
	}
	return nil
}

func (c *Command) checkRanks(op *bench.Operation, ranks int) error {
	if ranks < 1 || ranks > launch.MaxRanks {
		return cli.Usagef("--ranks %d: want 1 to %d", ranks, launch.MaxRanks)
	}
	if c.Subsets < 1 || ranks%c.Subsets != 0 {
		return cli.Usagef("--subsets %d: want a number that divides %d ranks into equal sets", c.Subsets, ranks)
	}
	members := ranks / c.Subsets
	switch {
	case op.Ranks > 0 && members != op.Ranks:
		return cli.Usagef("%s runs on %d ranks; want --ranks %d, or %d times as many with --subsets, not %d ranks",
			op.Name, op.Ranks, op.Ranks, op.Ranks, ranks)
	case c.Root != nil && (*c.Root < 0 || *c.Root >= members):
		return cli.Usagef("--root %d: no such rank; want 0 to %d", *c.Root, members-1)
	case c.OSU && op.Collective == "broadcast" && members == 1:
		return cli.Usagef("--osu: times a broadcast on its leaves, and one rank alone has none; want 2 ranks or more")
	}
	return nil
}

func (j *job) String() string {
	s := j.Op
	if j.Reduces() {
		s = fmt.Sprintf("%s of %v, %v", s, j.DType, j.Reduce)
	}
	if j.Buffers > 1 {
		s = fmt.Sprintf("%s of %d buffers", s, j.Buffers)
	}
	if j.Subsets > 1 {
		s = fmt.Sprintf("%s in %d disjoint subsets at once", s, j.Subsets)
	}
	if j.InPlace {
		s += ", in place"
	}
	if j.Secure {
		s += ", encrypted"
	}
	if j.Integrity {
		s += ", with integrity checks"
	}
	return s
}
