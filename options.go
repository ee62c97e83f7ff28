package allcast

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/fabric/fault"
	"github.com/allcast/allcast/internal/offload/bpf"
	"github.com/allcast/allcast/internal/rendezvous"
	"github.com/allcast/allcast/internal/units"
	"github.com/allcast/allcast/internal/world"
)

// Version is what ranks compare when they meet: they must all run the same.
const Version = "0.6.0"

// Options say how to join a job. The zero value takes everything from the
// environment: rank, size and address from the variables that torchrun, Open MPI,
// PMI or Slurm set, the rest from ALLCAST_KEY, ALLCAST_IFNAME, ALLCAST_FABRIC, ALLCAST_DEVICE, ALLCAST_TUNING,
// ALLCAST_GROUPS, ALLCAST_DATAPATH, ALLCAST_HOOK, ALLCAST_RECEIVE_CORES, ALLCAST_RACK, ALLCAST_RATE, ALLCAST_CALIBRATE, ALLCAST_TIMEOUT,
// ALLCAST_SECURE, ALLCAST_INTEGRITY, ALLCAST_DEBUG and ALLCAST_FAULT. What is set here
// counts more. ALLCAST_METRICS, ALLCAST_INSPECT and ALLCAST_RECORDER say how the process
// can be watched: see docs/operations.md.
type Options struct {
	// Rank, Size and Addr (host:port of rank 0) describe the job, if Size is not 0.
	Rank, Size int
	Addr       string

	// Key authenticates the ranks to each other. It is the same on all of them, and at
	// least 16 bytes.
	Key []byte

	// Secure seals all that ranks send to each other with AES-GCM, so that nobody without
	// the key can read or change it; see SECURITY.md. It needs a key, and is the same on
	// all ranks. ALLCAST_SECURE=on does it too.
	Secure bool

	// Integrity finds data that changed by accident: on the way, by checksums of all that
	// is sent; and in memory, by comparing a checksum of the result with a neighbour at
	// the end of each Broadcast and Allgather by multicast (ErrCorrupt). It is the same on
	// all ranks. ALLCAST_INTEGRITY=on does it too.
	Integrity bool

	// Interface names the network interface to use, "^name" any but that one. By
	// default it is the one over which rank 0 is reached.
	Interface string

	// Fabric is the network to use: "ip", or "verbs" for InfiniBand and RoCE in programs
	// that were built with the tag "verbs". It is the same on all ranks. By default
	// ALLCAST_FABRIC says, or it is "ip".
	Fabric string

	// Device names the verbs device and its port, such as "mlx5_0:1"; several, separated by
	// commas, are given to ranks in turn. By default it is the one of the interface
	// towards rank 0, or the first that works.
	Device string

	// Rack names what is near this rank, such as its leaf switch: WithChainsByRack makes
	// a chain of the ranks of each rack.
	Rack string

	// Rate is what the network carries to a rank, in bits a second. Ranks that multicast at
	// once then pace themselves by it, which helps where switches have little memory. By
	// default only credit slows them down, which wastes less.
	Rate float64

	// Timeout is how long a rank may be silent before it is declared lost (10 s).
	Timeout time.Duration

	// JoinTimeout is how long Join waits for all ranks (60 s).
	JoinTimeout time.Duration

	// Deadline, if not 0, bounds every operation from its start on.
	Deadline time.Duration

	// Subgroups is how many multicast groups to open (1): operations may spread over
	// so many trees and receive workers.
	Subgroups int

	// Groups are the multicast groups to use, one a subgroup at least, where the
	// network forwards only those that it was set up for. By default they are
	// derived from the job's key.
	Groups []netip.AddrPort

	// Chunk is the payload of a datagram; 0 is the largest that fits a packet. Larger ones, up
	// to 65453 bytes, are sent as a super-packet of several packets with one header, which takes
	// less work a byte; where it does not arrive whole, as without GRO, it is lost, and Join says
	// that multicast does not work.
	Chunk int

	// TTL and DSCP of multicast datagrams. TTL 0: 1 on loopback, 16 elsewhere.
	TTL, DSCP int

	// ReceiveBuffer is the socket buffer to ask for, in bytes (8 MiB).
	ReceiveBuffer int

	// PlainSockets turns segmentation offload (UDP_SEGMENT, UDP_GRO) off.
	PlainSockets bool

	// Datapath says who puts received chunks in place: "host" (the default), this process; "bpf",
	// the kernel, by an eBPF program, which takes no time of the process but needs CAP_BPF and CAP_PERFMON;
	// "auto", the kernel if it can. Hook is where the kernel looks at packets: "sockfilter"
	// (the default), "tcx" or "xdp", of which the latter two need CAP_NET_ADMIN as well. Ranks
	// may differ in both. See Comm.Alloc. ALLCAST_DATAPATH and ALLCAST_HOOK do it too.
	Datapath, Hook string

	// ReceiveCores are processors on which the kernel is to take packets from the interface,
	// by threads of its own (threaded NAPI), until Close; by default it does so wherever it
	// likes. Ranks on one host share the interface: the last one to close restores its settings.
	// It needs root and is not for loopback. ALLCAST_RECEIVE_CORES=2,3 does it too.
	ReceiveCores []int

	// NoMulticast does without multicast.
	NoMulticast bool

	// Tuning picks algorithms by operation and size: see ALLCAST_TUNING in the manual.
	Tuning string

	// NoCalibration leaves out that Join tries which algorithms are the fastest here for
	// small operations, which takes some ten milliseconds: "auto" then goes by a model. One
	// rank that leaves it out is enough. ALLCAST_CALIBRATE=off does it too.
	NoCalibration bool

	// Processors that workers are bound to; none by default.
	Pin []int

	// Logger gets what people should know. By default warnings go to standard
	// error, more with ALLCAST_DEBUG. Records name ranks by their world ranks.
	Logger *slog.Logger
}

// ErrOptions marks options or variables that make no sense.
var ErrOptions = errors.New("bad options")

func optionError(format string, args ...any) error {
	return fmt.Errorf("allcast: %w: %w", ErrOptions, fmt.Errorf(format, args...))
}

// settle completes the options from the environment.
func (o Options) settle(lookup func(string) (string, bool)) (world.Config, tuning, error) {
	var none world.Config
	cfg := world.Config{
		Rank: o.Rank, Size: o.Size, Addr: o.Addr, Key: o.Key, Interface: o.Interface, Timeout: o.Timeout, JoinTimeout: o.JoinTimeout,
		Deadline: o.Deadline, Subgroups: o.Subgroups, Chunk: o.Chunk, TTL: o.TTL, DSCP: o.DSCP, RecvBuffer: o.ReceiveBuffer,
		Groups: o.Groups, Plain: o.PlainSockets, Pin: o.Pin, Log: o.Logger, Version: Version, Rack: o.Rack, Rate: o.Rate,
		Secure: o.Secure, Integrity: o.Integrity, Fabric: o.Fabric, Device: o.Device, Datapath: o.Datapath, Hook: o.Hook, RecvCores: o.ReceiveCores,
	}
	if o.NoMulticast {
		cfg.NoMulticast = "it was turned off"
	}
	if o.Size == 0 {
		env, found, err := rendezvous.FromEnv(lookup)
		if err != nil {
			return none, nil, fmt.Errorf("allcast: %w", err)
		}
		if !found {
			return none, nil, optionError("no rank variables in the environment: start the program with torchrun, mpirun, srun or \"allcast run -n RANKS -- PROGRAM\", or set Options.Rank, Size and Addr")
		}
		cfg.Rank, cfg.Size, cfg.Addr = env.Rank, env.Size, env.Addr
	}
	get := func(name string) string { v, _ := lookup(name); return v }
	if cfg.Key == nil {
		var err error
		if cfg.Key, err = rendezvous.Key(lookup); err != nil {
			return none, nil, fmt.Errorf("allcast: %w", err)
		}
	}
	if cfg.Interface == "" {
		cfg.Interface = get("ALLCAST_IFNAME")
	}
	if cfg.Fabric == "" {
		cfg.Fabric = get("ALLCAST_FABRIC")
	}
	if cfg.Fabric == "" {
		cfg.Fabric = world.IP
	}
	if cfg.Device == "" {
		cfg.Device = get("ALLCAST_DEVICE")
	}
	if cfg.Datapath == "" {
		cfg.Datapath = get("ALLCAST_DATAPATH")
	}
	if cfg.Hook == "" && cfg.Datapath != "" && cfg.Datapath != world.Host {
		cfg.Hook = get("ALLCAST_HOOK")
	}
	if v := get("ALLCAST_RECEIVE_CORES"); v != "" && cfg.RecvCores == nil {
		for f := range strings.SplitSeq(v, ",") {
			cpu, err := strconv.Atoi(f)
			if err != nil {
				return none, nil, optionError("ALLCAST_RECEIVE_CORES=%q: want processors such as 2,3", v)
			}
			cfg.RecvCores = append(cfg.RecvCores, cpu)
		}
	}
	if cfg.Log == nil {
		log, err := logger(get("ALLCAST_DEBUG"), cfg.Rank)
		if err != nil {
			return none, nil, err
		}
		cfg.Log = log
	}
	if v := get("ALLCAST_TIMEOUT"); v != "" && cfg.Timeout == 0 {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return none, nil, optionError("ALLCAST_TIMEOUT=%q: want a duration such as 10s", v)
		}
		cfg.Timeout = d
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	var err error
	if cfg.Rack == "" {
		cfg.Rack = get("ALLCAST_RACK")
	}
	if v := get("ALLCAST_RATE"); v != "" && cfg.Rate == 0 {
		r, err := units.ParseRate(v)
		if err != nil {
			return none, nil, optionError("ALLCAST_RATE: %w", err)
		}
		cfg.Rate = float64(r)
	}
	if v := get("ALLCAST_GROUPS"); v != "" && cfg.Groups == nil {
		if cfg.Groups, err = parseGroups(v); err != nil {
			return none, nil, optionError("ALLCAST_GROUPS=%q: %w", v, err)
		}
	}
	if cfg.Fault, err = fault.Parse(get("ALLCAST_FAULT")); err != nil {
		return none, nil, optionError("ALLCAST_FAULT: %w", err)
	}
	switch v := get("ALLCAST_CALIBRATE"); v {
	case "", "on":
		cfg.Calibrate = !o.NoCalibration
	case "off":
	default:
		return none, nil, optionError("ALLCAST_CALIBRATE=%q: want on or off", v)
	}
	for _, s := range []struct {
		name string
		on   *bool
	}{{"ALLCAST_SECURE", &cfg.Secure}, {"ALLCAST_INTEGRITY", &cfg.Integrity}} {
		switch v := get(s.name); v {
		case "", "off":
		case "on":
			*s.on = true
		default:
			return none, nil, optionError("%s=%q: want on or off", s.name, v)
		}
	}
	if cfg.Recorder, err = recorderDir(get("ALLCAST_RECORDER")); err != nil {
		return none, nil, err
	}
	name, spec := "Options.Tuning", o.Tuning
	if spec == "" {
		name, spec = "ALLCAST_TUNING", get("ALLCAST_TUNING")
	}
	tune, err := parseTuning(spec)
	if err != nil {
		return none, nil, optionError("%s: %w", name, err)
	}
	return cfg, tune, check(cfg)
}

func check(c world.Config) error {
	switch {
	case c.Size < 1 || c.Rank < 0 || c.Rank >= c.Size:
		return optionError("rank %d of %d", c.Rank, c.Size)
	case c.Size > 1 && c.Addr == "":
		return optionError("no address of rank 0: set Options.Addr or MASTER_ADDR and MASTER_PORT")
	case c.Key != nil && len(c.Key) < 16:
		return optionError("a key of %d bytes: want at least 16", len(c.Key))
	case c.Secure && len(c.Key) == 0:
		return optionError("nothing can be sealed (Options.Secure, ALLCAST_SECURE) without a key: set ALLCAST_KEY or ALLCAST_KEY_FILE to the same on all ranks, or start them with \"allcast run\", which makes one")
	case c.Fabric != world.IP && c.Fabric != world.Verbs:
		return optionError("fabric %q (Options.Fabric, ALLCAST_FABRIC): want ip or verbs", c.Fabric)
	case c.Fabric == world.Verbs && !world.HasVerbs:
		return optionError("fabric verbs (Options.Fabric, ALLCAST_FABRIC): " + world.BuildVerbs)
	case c.Fabric == world.Verbs && c.Secure:
		return optionError("nothing can be sealed on the fabric verbs (Options.Secure, ALLCAST_SECURE): peers read each other's memory; use the fabric ip")
	case c.Datapath != "" && c.Datapath != world.Host && c.Datapath != world.BPF && c.Datapath != world.Auto:
		return optionError("datapath %q (Options.Datapath, ALLCAST_DATAPATH): want host, bpf or auto", c.Datapath)
	case c.Datapath == world.BPF && c.Fabric == world.Verbs:
		return optionError("the bpf datapath (Options.Datapath, ALLCAST_DATAPATH) with the fabric verbs: what comes by verbs does not pass the kernel; use host")
	case c.Hook != "" && (c.Datapath == "" || c.Datapath == world.Host):
		return optionError("hook %q (Options.Hook, ALLCAST_HOOK) without the bpf datapath: set Options.Datapath or ALLCAST_DATAPATH to bpf or auto", c.Hook)
	case c.Rate < 0 || len(c.Rack) > maxRack:
		return optionError("rate %g, a rack's name of %d bytes: want 0 or more, and at most %d", c.Rate, len(c.Rack), maxRack)
	case c.Timeout < 0 || c.JoinTimeout < 0 || c.Deadline < 0:
		return optionError("a negative duration")
	case c.Subgroups < 0 || c.Subgroups > maxSubgroups:
		return optionError("%d subgroups: want 1 to %d", c.Subgroups, maxSubgroups)
	case c.Groups != nil && max(1, c.Subgroups) > len(c.Groups):
		return optionError("%d subgroups, and only %d multicast groups given (ALLCAST_GROUPS): give one for each", max(1, c.Subgroups), len(c.Groups))
	case slices.ContainsFunc(slices.Concat(c.Pin, c.RecvCores), func(cpu int) bool { return cpu < 0 }):
		return optionError("processors %v and %v: none may be negative", c.Pin, c.RecvCores)
	case c.Chunk < 0 || c.TTL < 0 || c.TTL > 255 || c.DSCP < 0 || c.DSCP > 63 || c.RecvBuffer < 0:
		return optionError("chunk %d, TTL %d, DSCP %d, receive buffer %d: want at least 0, 0 to 255, 0 to 63, at least 0", c.Chunk, c.TTL, c.DSCP, c.RecvBuffer)
	}
	if _, err := bpf.ParseHook(c.Hook); err != nil {
		return optionError("Options.Hook, ALLCAST_HOOK: %w", err)
	}
	return nil
}

// maxRack is how long a rack's name may be: everybody gets everybody's.
const maxRack = 256

// maxSubgroups is how many groups a process opens at most: each has a socket and a
// worker.
const maxSubgroups = 64

// parseGroups reads "239.1.2.3:20000,239.1.2.4:20001".
func parseGroups(list string) (groups []netip.AddrPort, err error) {
	for f := range strings.SplitSeq(list, ",") {
		g, err := netip.ParseAddrPort(f)
		switch {
		case err != nil || g.Port() == 0:
			return nil, fmt.Errorf("%q is not ADDRESS:PORT", f)
		case !g.Addr().IsMulticast():
			return nil, fmt.Errorf("%v is not a multicast address", g.Addr())
		case slices.Contains(groups, g):
			return nil, fmt.Errorf("%v is there twice", g)
		}
		groups = append(groups, g)
	}
	return groups, nil
}

func logger(level string, rank int) (*slog.Logger, error) {
	l := slog.LevelWarn
	switch level {
	case "", "warn":
	case "info":
		l = slog.LevelInfo
	case "debug":
		l = slog.LevelDebug
	case "trace":
		l = engine.LevelTrace
	default:
		return nil, optionError("ALLCAST_DEBUG=%q: want warn, info, debug or trace", level)
	}
	h := slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l, ReplaceAttr: nameTrace})
	return slog.New(h).With("allcast", Version, "rank", rank), nil
}

// size reads a size as people write it.
func size(s string) (int64, error) {
	n, err := units.ParseSize(s)
	return int64(n), err
}
