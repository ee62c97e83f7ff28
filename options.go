package allcast

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/allcast/allcast/internal/settings"
)

// Version is the version of software and protocol. All ranks of a job must run the same.
const Version = "0.6.0"

// Options say how to join a job. The zero value takes everything from the environment. Fields set here
// override the environment.
//
// Rank, size and address come from the variables of torchrun, Open MPI, PMI or Slurm. The rest comes
// from ALLCAST_KEY, ALLCAST_KEY_FILE, ALLCAST_IFNAME, ALLCAST_FABRIC, ALLCAST_DEVICE, ALLCAST_GROUPS,
// ALLCAST_RACK, ALLCAST_RATE, ALLCAST_SECURE, ALLCAST_INTEGRITY, ALLCAST_DATAPATH, ALLCAST_HOOK,
// ALLCAST_RECEIVE_CORES, ALLCAST_TIMEOUT, ALLCAST_TUNING, ALLCAST_CALIBRATE and ALLCAST_DEBUG.
// ALLCAST_METRICS, ALLCAST_INSPECT and ALLCAST_RECORDER control how people can watch the process, and
// ALLCAST_FAULT injects faults for tests. See docs/settings.md and docs/operations.md.
type Options struct {
	// Rank, Size and Addr (host:port of rank 0) describe the job, if Size is not 0.
	Rank, Size int
	Addr       string

	// Key authenticates the ranks to each other. It has at least 16 bytes and is the same on all ranks.
	Key []byte

	// Secure encrypts all traffic between ranks with AES-GCM, so that nobody without the key can read or
	// change it; see SECURITY.md. It needs a key, and is the same on all ranks. ALLCAST_SECURE=on also
	// enables it.
	Secure bool

	// Integrity detects data that changes by accident. Checksums of all traffic detect changes on the
	// network. At the end of each Broadcast and Allgather by multicast, ranks compare a checksum of the
	// result with a neighbour to detect changes in memory (ErrCorrupt). It is the same on all ranks.
	// ALLCAST_INTEGRITY=on also enables it.
	Integrity bool

	// Interface names the network interface to use; "^name" means any but that one. The default is the
	// interface over which the rank reaches rank 0.
	Interface string

	// Fabric is the network to use: "ip" (the default), or "verbs" for InfiniBand and RoCE in programs
	// that were built with the tag "verbs". It is the same on all ranks.
	Fabric string

	// Device names the verbs device and its port, such as "mlx5_0:1". Ranks take several devices, separated
	// by commas, in turn. The default is the device of the interface towards rank 0, or the first that
	// works.
	Device string

	// Rack names the neighbourhood of this rank, such as its leaf switch. WithChainsByRack makes a chain of
	// the ranks of each rack.
	Rack string

	// Rate is the rate at which the network delivers data to a rank, in bits per second. Ranks that
	// multicast at once pace themselves by it, which helps where switches have little memory. By default
	// only credit slows them down, which wastes less.
	Rate float64

	// Timeout is how long a rank may be silent before it is declared lost (default 10 s).
	Timeout time.Duration

	// JoinTimeout is how long Join waits for all ranks (default 60 s).
	JoinTimeout time.Duration

	// Deadline, if not 0, bounds every operation from its start on.
	Deadline time.Duration

	// Subgroups is the number of multicast groups to open (default 1). Operations may spread over as many
	// trees and receive workers.
	Subgroups int

	// Groups are the multicast groups to use, at least one per subgroup, where the network forwards only
	// some groups. By default they are derived from the job's key.
	Groups []netip.AddrPort

	// Chunk is the payload of a datagram in bytes; 0 means the largest that fits a packet. Larger chunks, up
	// to 65453 bytes, travel as a super-packet of several packets with one header, which takes less work
	// per byte. A super-packet that does not arrive whole, as without GRO, is lost, and Join reports that
	// multicast does not work.
	Chunk int

	// TTL and DSCP of multicast datagrams. TTL 0 means 1 on loopback and 16 elsewhere.
	TTL, DSCP int

	// ReceiveBuffer is the size in bytes of the socket buffer to ask for (default 8 MiB).
	ReceiveBuffer int

	// PlainSockets turns segmentation offload (UDP_SEGMENT, UDP_GRO) off.
	PlainSockets bool

	// Datapath selects the code that puts received chunks in place. With "host" (the default) it is this
	// process. With "bpf" it is an eBPF program in the kernel, which takes no time of the process but needs
	// CAP_BPF and CAP_PERFMON. "auto" means the kernel if it can. Hook is the place where the kernel looks
	// at packets: "sockfilter" (the default), "tcx" or "xdp"; the last two need CAP_NET_ADMIN as well.
	// Ranks may differ in both. See Comm.Alloc.
	Datapath, Hook string

	// ReceiveCores are the processors on which threads of the kernel (threaded NAPI) take packets from the
	// interface until Close. By default the kernel chooses. Ranks on one host share the interface, and the
	// last one to close restores its settings. It needs root and does not work on loopback.
	ReceiveCores []int

	// NoMulticast disables multicast.
	NoMulticast bool

	// Tuning selects algorithms by operation and size; see ALLCAST_TUNING in docs/settings.md.
	Tuning string

	// NoCalibration skips the algorithm benchmark that Join runs for small operations, which takes some
	// ten milliseconds. "auto" then uses a model. If one rank skips the benchmark, all do.
	// ALLCAST_CALIBRATE=off also skips it.
	NoCalibration bool

	// Pin lists the processors that workers are bound to; none by default.
	Pin []int

	// Logger gets all messages for people, which name ranks by their world ranks. By default warnings go to
	// standard error, and more with ALLCAST_DEBUG.
	Logger *slog.Logger
}

// ErrOptions marks invalid options or environment variables.
var ErrOptions = errors.New("bad options")

func optionError(err error) error { return fmt.Errorf("allcast: %w: %w", ErrOptions, err) }

// resolve completes the options from the environment and checks them.
func (o *Options) resolve(env settings.Env) (settings.Settings, error) {
	s, err := settings.Resolve(settings.Settings{
		Job: settings.Job{Rank: o.Rank, Size: o.Size, Addr: o.Addr, Version: Version},
		Network: settings.Network{
			Interface: o.Interface, Fabric: o.Fabric, Device: o.Device, Rack: o.Rack, Subgroups: o.Subgroups, Groups: o.Groups,
			Chunk: o.Chunk, TTL: o.TTL, DSCP: o.DSCP, ReceiveBuffer: o.ReceiveBuffer, PlainSockets: o.PlainSockets,
			NoMulticast: o.NoMulticast,
		},
		Protection: settings.Protection{Key: o.Key, Secure: o.Secure, Integrity: o.Integrity},
		Transfer: settings.Transfer{
			Rate: o.Rate, Datapath: o.Datapath, Hook: o.Hook, ReceiveCores: o.ReceiveCores, Pin: o.Pin,
		},
		Liveness:    settings.Liveness{Timeout: o.Timeout, JoinTimeout: o.JoinTimeout, Deadline: o.Deadline},
		Observation: settings.Observation{Logger: o.Logger},
		Choice:      settings.Choice{Tuning: o.Tuning, NoCalibration: o.NoCalibration},
	}, env)
	if err != nil {
		return s, optionError(err)
	}
	return s, nil
}
