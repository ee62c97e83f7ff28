package allcast

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/allcast/allcast/internal/settings"
	"github.com/allcast/allcast/store"
)

// Version is the version of the software. Ranks of one job may have different versions if their Protocol is the same.
const Version = "0.10.0"

// Protocol is the number of the protocol between ranks, which must be the same on all ranks of a job. It changes with
// the wire format, and with every result that ranks compute independently and must agree on, such as plans of
// algorithms and the choices of auto.
const Protocol = 10

// Options configure [Join]. The zero value takes all settings from the environment. Fields set here override
// the environment.
//
// Rank, size and address come from the variables of torchrun, Open MPI, PMI, PMIx, Slurm, Kubeflow or Kubernetes.
// The rest comes
// from ALLCAST_KEY, ALLCAST_KEY_FILE, ALLCAST_IFNAME, ALLCAST_FABRIC, ALLCAST_DEVICE, ALLCAST_GROUPS,
// ALLCAST_COMM_GROUPS, ALLCAST_RACK, ALLCAST_RATE, ALLCAST_SECURE, ALLCAST_INTEGRITY, ALLCAST_AGGREGATORS,
// ALLCAST_SITE_KEY_FILE, ALLCAST_DATAPATH, ALLCAST_HOOK, ALLCAST_RECEIVE_CORES, ALLCAST_TIMEOUT, ALLCAST_TUNING,
// ALLCAST_CALIBRATE and ALLCAST_DEBUG.
// ALLCAST_METRICS, ALLCAST_INSPECT and ALLCAST_RECORDER control how users can observe the process.
// ALLCAST_MPI and ALLCAST_MPI_THRESHOLD count for MPI programs only. ALLCAST_FAULT injects faults for tests. The files
// docs/settings.md and docs/operations.md of the source describe all of them.
type Options struct {
	// Rank, Size and Addr (host:port of rank 0) describe the job. They are ignored if Size is 0.
	Rank, Size int
	Addr       string

	// Store lets the ranks find each other without an address of rank 0. Addr must then be empty, and MASTER_ADDR
	// is ignored. All ranks must use the same store. Package store has stores on a shared directory and on HTTP;
	// etcd, or the store that PyTorch passes to a backend, needs only two methods.
	Store store.Store

	// Attempt tells jobs apart that use the same store, one after the other or at once: a restart of the same job
	// should have the next number. It must be the same on all ranks. Without a Store it has no effect.
	Attempt int

	// Key authenticates the ranks to each other. It has at least 16 bytes and must be the same on all ranks.
	Key []byte

	// Secure encrypts all traffic between ranks with AES-GCM. Without the key, a process can neither read nor
	// change the traffic; see SECURITY.md. Secure requires a key and must be the same on all ranks.
	// ALLCAST_SECURE=on also enables it.
	Secure bool

	// Integrity detects accidental changes of data. Checksums of all traffic detect changes on the network. At
	// the end of each Broadcast and Allgather by multicast, neighbours compare checksums of the result to
	// detect changes in memory (ErrCorrupt). Integrity must be the same on all ranks. ALLCAST_INTEGRITY=on
	// also enables it.
	Integrity bool

	// Aggregators lists the aggregators ("allcast aggregator") that reduce data inside the network, for the algorithm
	// "inc" of ReduceScatter and Allreduce on the IP fabric. The aggregators form a tree. They are separated by
	// semicolons, and each has the form
	//
	//	HOST:PORT[=RANKS][>PARENT]
	//
	// RANKS are the ranks that it serves, such as 0-3,8; every rank has one aggregator. PARENT is the HOST:PORT of its
	// parent, and the one at the top has none. Aggregators must be the same on all ranks. Secure and Integrity disable
	// them, because an aggregator must see and change the values.
	Aggregators string

	// SiteKey is the key with which the operator started the aggregators. It has at least 16 bytes.
	SiteKey []byte

	// Interface names the network interface to use; "^name" excludes one. The default is the interface over
	// which this rank reaches rank 0.
	Interface string

	// Fabric is the network to use: "ip" (the default) or "verbs" for InfiniBand and RoCE. The latter requires
	// a program built with the tag "verbs". Fabric must be the same on all ranks.
	Fabric string

	// Device names the verbs device and its port, such as "mlx5_0:1". If it lists several devices, separated
	// by commas, consecutive ranks use them round-robin. The default is the device of the interface towards
	// rank 0, or the first that works.
	Device string

	// Rack names the neighbourhood of this rank, such as its leaf switch, for WithChainsByRack.
	Rack string

	// Rate is the rate at which the network delivers data to a rank, in bits per second. Ranks that multicast
	// at the same time then share this rate, which helps if switches have small buffers. By default only
	// credit limits senders, which uses the network better.
	Rate float64

	// Timeout is the silence after which a rank is declared lost (default 10 s).
	Timeout time.Duration

	// JoinTimeout is the time that Join waits for all ranks (default 60 s).
	JoinTimeout time.Duration

	// Deadline limits the duration of every collective; 0 means no limit. A Send or a Recv may wait longer.
	// WithTimeout limits single calls.
	Deadline time.Duration

	// Subgroups is the number of multicast groups to open. Operations spread over as many trees and receive
	// workers. The default is the number of Groups, or 1 if there are none.
	Subgroups int

	// Groups are the multicast groups to use, at least one per subgroup. Set them if the network forwards only
	// some groups, or if each spine has a tree. By default they are derived from the key of the job.
	Groups []netip.AddrPort

	// CommGroups are the addresses from which communicators of Split, Subset and Shrink take multicast groups
	// of their own, on the IP fabric, so that their data does not reach the hosts of other ranks. By default
	// the addresses are derived from the key of the job. With Groups set, communicators share these by default.
	// A socket can join 20 groups by default (net.ipv4.igmp_max_memberships). A communicator beyond that
	// shares the groups of the job, and the log says so.
	CommGroups netip.Prefix

	// Chunk is the payload of a datagram in bytes; 0 means the largest that fits a packet. Larger chunks, up
	// to 65453 bytes, travel as a super-packet of several packets with one header, which costs less per
	// byte. If the network does not deliver super-packets whole, for example without GRO, Join reports that
	// multicast does not work. The datagrams of Aggregators are as long, rounded down to a multiple of 8 bytes, but
	// never longer than a packet.
	Chunk int

	// TTL and DSCP of multicast datagrams. TTL 0 means 1 on loopback and 16 elsewhere.
	TTL, DSCP int

	// ReceiveBuffer is the requested size of the socket buffer in bytes (default 8 MiB).
	ReceiveBuffer int

	// PlainSockets disables segmentation offload (UDP_SEGMENT, UDP_GRO) for multicast. The socket for Aggregators always
	// uses it where the system has it.
	PlainSockets bool

	// Datapath selects the code that places received chunks: this process with "host" (the default), or an
	// eBPF program in the kernel with "bpf". The eBPF program uses no time of the process but requires
	// CAP_BPF and CAP_PERFMON. "auto" selects "bpf" where it works and is not slower. Hook is the attachment point of the
	// program: "sockfilter" (the default), "tcx" or "xdp"; the last two also require CAP_NET_ADMIN. Both may
	// differ between ranks. See Comm.Alloc.
	Datapath, Hook string

	// ReceiveCores are the processors on which threads of the kernel (threaded NAPI) receive packets from the
	// interface until Close. By default the kernel chooses. Ranks on one host share the interface, and the
	// last one to close restores its settings. ReceiveCores requires root and does not work on loopback.
	ReceiveCores []int

	// NoMulticast disables multicast.
	NoMulticast bool

	// Tuning selects algorithms by operation and size. It is a list of rules, separated by semicolons:
	//
	//	operation[:from-to]:algorithm[,algorithm...]
	//
	// Function Algorithms lists the operations and their algorithms; auto is valid too. From and to limit the
	// size in bytes, inclusive, such as 512, 4K or 1M; to may be inf. The size is the length of the buffer of a
	// Broadcast, Reduce or Allreduce, the largest contribution to an Allgather, the largest block of a
	// ReduceScatter, and the block of one rank of a Gather, Scatter or Alltoall. It is 0 for a Gatherv, Scatterv or
	// Alltoallv, whose sizes are known to some ranks only.
	//
	// The first rule that matches a call applies. It uses the first of its algorithms that works on the network;
	// if none does, the call fails with a NoMulticastError. Calls that no rule matches use auto, which always
	// works. WithAlgorithm overrides the rules. All ranks must have the same rules. In this example small
	// blocks use bruck, and larger ones use multicast where it works, else ring:
	//
	//	allgather:0-4K:bruck;allgather:mcast,ring
	Tuning string

	// NoCalibration skips the benchmark that Join runs, which takes a tenth of a second, and longer on links below
	// 1 Gbit/s. It measures Broadcast and Allgather, and with Aggregators that work also ReduceScatter and Allreduce.
	// Without it, "auto" uses a cost model, multicasts have one chain (with Aggregators, an Allgather has one per rank),
	// and "auto" never uses Aggregators. With it, "auto" uses them where they were faster. Sums of floats may then
	// differ between runs in their last bits; WithAlgorithm and Tuning prevent that. If one rank skips the benchmark,
	// all ranks do. ALLCAST_CALIBRATE=off also skips it.
	NoCalibration bool

	// Pin lists the processors that workers are bound to; none by default.
	Pin []int

	// Logger receives all log messages. Every record has the attribute "rank", the world rank of this process;
	// other ranks in messages are world ranks too. By default warnings go to standard error, and ALLCAST_DEBUG
	// adds more.
	Logger *slog.Logger
}

// ErrOptions marks invalid options or environment variables.
var ErrOptions = errors.New("bad options")

func optionError(err error) error { return fmt.Errorf("allcast: %w: %w", ErrOptions, err) }

// resolve completes the options from the environment and checks them.
func (o *Options) resolve(env settings.Env) (settings.Settings, error) {
	s, err := settings.Resolve(settings.Settings{
		Job:     settings.Job{Rank: o.Rank, Size: o.Size, Addr: o.Addr, Version: Version},
		Meeting: settings.Meeting{Store: o.Store, Attempt: o.Attempt, Protocol: Protocol},
		Network: settings.Network{
			Interface: o.Interface, Fabric: o.Fabric, Device: o.Device, Rack: o.Rack,
			Subgroups: o.Subgroups, Groups: o.Groups, CommGroups: o.CommGroups, Chunk: o.Chunk, TTL: o.TTL, DSCP: o.DSCP,
			ReceiveBuffer: o.ReceiveBuffer, PlainSockets: o.PlainSockets, NoMulticast: o.NoMulticast,
		},
		Protection:  settings.Protection{Key: o.Key, Secure: o.Secure, Integrity: o.Integrity},
		Aggregation: settings.Aggregation{Aggregators: o.Aggregators, SiteKey: o.SiteKey},
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
