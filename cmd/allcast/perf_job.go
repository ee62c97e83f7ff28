package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/launch"
	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/internal/units"
)

// perfMaxSubgroups is what the library opens at most; more is clamped.
const perfMaxSubgroups = 64

// perfJob is what perf was asked for, checked.
type perfJob struct {
	op            string
	algos         []string
	sizes         []int64
	iters, warmup int // 0 iters: as many as OSU's method makes of a size
	osu           bool
	check         bool
	root          int
	chains        int
	byRack        bool
	subgroups     int
	chunk         int
	inplace       bool
	dtype         allcast.DataType
	reduce        allcast.ReduceOp
	overlap       bool
	secure        bool
	integrity     bool
	datapath      string
	hook          string
	fabric        string // "": as the environment says
	device        string
	raw           string // file for the time of every rank and iteration; "" for none
}

// job checks the flags. Its errors are usage errors that say what is valid.
func (c *perfCmd) job(ranks int) (*perfJob, error) {
	if !slices.Contains(perfOperations, c.Operation) {
		return nil, usagef("unknown operation %q; valid: %s", c.Operation, strings.Join(perfOperations, ", "))
	}
	algos, err := checkAlgos(c.Operation, c.Algo)
	if err != nil {
		return nil, err
	}
	for _, check := range []func() error{c.checkFabric, c.checkNumbers, func() error { return c.checkRanks(ranks) }} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	j := &perfJob{
		op: c.Operation, algos: algos, osu: c.OSU, check: c.Check == 1, root: c.Root,
		chains: c.chains(ranks), byRack: c.ChainBy == "rack", subgroups: min(c.Subgroups, perfMaxSubgroups), inplace: c.InPlace, overlap: c.Overlap,
		secure: c.Secure, integrity: c.Integrity, fabric: c.Fabric, device: c.Device, datapath: c.Datapath, hook: c.Hook,
	}
	j.schedule(c.Iters, c.Warmup)
	if c.Chunk != nil {
		j.chunk = int(*c.Chunk)
	}
	if c.Raw != nil {
		j.raw = *c.Raw
	}
	if j.dtype, err = allcast.ParseDataType(c.DType); err != nil {
		return nil, usagef("--dtype: %s", strings.TrimPrefix(err.Error(), "allcast: "))
	}
	if j.reduce, err = allcast.ParseReduceOp(c.Reduce); err != nil {
		return nil, usagef("--reduce: %s", strings.TrimPrefix(err.Error(), "allcast: "))
	}
	if j.sizes, err = c.sizes(); err != nil {
		return nil, err
	}
	j.round()
	return j, nil
}

// checkFabric refuses what this program was not built with, and what does not go together.
func (c *perfCmd) checkFabric() error {
	switch {
	case c.Fabric == settings.Verbs && !settings.HasVerbs:
		return usagef("--fabric verbs: %s", settings.BuildVerbs)
	case c.Fabric != "" && c.Fabric != settings.IP && c.Fabric != settings.Verbs:
		return usagef("--fabric %s: unknown fabric; valid: ip, verbs", c.Fabric)
	case c.Device != "" && c.Fabric == settings.IP:
		return usagef("--device %s: devices belong to --fabric verbs", c.Device)
	case c.Secure && c.Fabric == settings.Verbs:
		return usagef("--secure: nothing can be sealed on the fabric verbs")
	}
	return c.checkDatapath()
}

// checkDatapath also looks at the environment, as the ranks will.
func (c *perfCmd) checkDatapath() error {
	if c.Datapath == "" {
		c.Datapath = settings.Process.Get("ALLCAST_DATAPATH")
	}
	if c.Hook == "" {
		c.Hook = settings.Process.Get("ALLCAST_HOOK")
	}
	err := settings.CheckHook(c.Hook)
	switch {
	case !slices.Contains([]string{"", "host", "bpf", "auto"}, c.Datapath):
		return usagef("--datapath %s: unknown datapath; valid: host, bpf, auto", c.Datapath)
	case err != nil:
		return usagef("--hook: %v", err)
	case c.Hook != "" && c.Datapath != "bpf" && c.Datapath != "auto":
		return usagef("--hook %s: hooks belong to --datapath bpf or auto", c.Hook)
	case c.Datapath == "bpf" && c.Fabric == settings.Verbs:
		return usagef("--datapath bpf: what comes by verbs does not pass the kernel; use --datapath host, or --fabric ip")
	case c.Datapath == "bpf" && (c.Secure || c.Integrity):
		return usagef("--datapath bpf: the kernel has no key for what --secure seals, and does not check the sums of --integrity; use --datapath host")
	}
	return nil
}

// chains is how many ranks multicast at a time. A root that multicasts alone has only a
// part of its link left for the reduction beside it, which all others then wait for; so
// all do it at once there, each with little.
func (c *perfCmd) chains(ranks int) int {
	switch {
	case c.Chains != nil:
		return *c.Chains
	case c.Operation == perfPair:
		return max(1, ranks)
	}
	return 1
}

func (c *perfCmd) checkNumbers() error {
	switch {
	case c.Iters != nil && *c.Iters < 1:
		return usagef("-n %d: want 1 or more iterations", *c.Iters)
	case c.Warmup != nil && *c.Warmup < 0:
		return usagef("-w %d: want 0 or more iterations", *c.Warmup)
	case c.Raw != nil && *c.Raw == "":
		return usagef("--raw: want the name of a file")
	case c.Check != 0 && c.Check != 1:
		return usagef("-c %d: want 0 or 1", c.Check)
	case c.Factor < 2:
		return usagef("-f %d: want 2 or more", c.Factor)
	case c.Chains != nil && *c.Chains < 1:
		return usagef("--chains %d: want 1 or more", *c.Chains)
	case c.ChainBy != "rank" && c.ChainBy != "rack":
		return usagef("--chain-by %q: want rank or rack", c.ChainBy)
	case c.Subgroups < 1:
		return usagef("--subgroups %d: want 1 or more", c.Subgroups)
	case c.Chunk != nil && (*c.Chunk < 1 || *c.Chunk > ip.MaxLong):
		return usagef("--chunk %v: want 1 to %v", *c.Chunk, units.Size(ip.MaxLong))
	}
	return nil
}

func (c *perfCmd) checkRanks(ranks int) error {
	if ranks < 1 || ranks > launch.MaxRanks {
		return usagef("--ranks %d: want 1 to %d", ranks, launch.MaxRanks)
	}
	if c.Root < 0 || c.Root >= ranks {
		return usagef("--root %d: no such rank; want 0 to %d", c.Root, ranks-1)
	}
	if c.OSU && c.Operation == "broadcast" && ranks == 1 {
		return usagef("--osu: times a broadcast on its leaves, and one rank has none; want 2 ranks or more")
	}
	return nil
}

func (j *perfJob) reduces() bool {
	return j.op == "reduce-scatter" || j.op == "allreduce" || j.op == perfPair
}

// meaning says what the size of this operation is.
func (j *perfJob) meaning() string {
	switch j.op {
	case "reduce-scatter":
		return "bytes is N of the paper: what one rank receives"
	case perfPair:
		return "bytes is N of the paper: what one rank sends in the Allgather and receives in the Reduce-Scatter"
	case "allreduce":
		return "bytes is what one rank contributes, and receives"
	case "barrier":
		return "a Barrier moves no bytes"
	}
	return "bytes is N of the paper: what one rank sends"
}

func (j *perfJob) String() string {
	s := j.op
	if j.reduces() {
		s = fmt.Sprintf("%s of %v, %v", s, j.dtype, j.reduce)
	}
	if j.secure {
		s += ", sealed"
	}
	if j.integrity {
		s += ", with integrity checks"
	}
	return s
}
