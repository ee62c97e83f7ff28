package sim

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/mcast"
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
	"github.com/allcast/allcast/internal/units"
)

// ErrConfig marks an invalid Config.
var ErrConfig = errors.New("bad simulation")

func badConfig(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
}

// Config describes one simulated collective.
type Config struct {
	Op       string          // a key of Algorithms
	Algo     string          // one of Algorithms[Op], or "auto"
	Topology *topology.Graph // one rank per host, rank i on host i

	// Bytes is what one rank sends. In a reduce-scatter it is what one rank receives, in a scatter or an
	// alltoall the size of one block. Blocks of private sizes have 0 to twice as many bytes, from the seed.
	Bytes   int64
	Counts  []int64 // allgather: bytes per rank; overrides Bytes
	Root    int     // of rooted operations
	InPlace bool    // whether the send buffer is the rank's block of the receive buffer

	Labels
	Schedule
	Network
	Receiver
	Faults

	Timeout  time.Duration // silence after which a rank is declared lost
	Deadline time.Duration // time after which the operation is aborted; 0 for never
	Seed     uint64
	Pcap     io.Writer // capture of every packet that leaves a host, if set
	// Progress, if set, is called now and then while the collective runs.
	Progress func(Progress)

	reason string // reason why auto chose Algo
	tags   bool   // whether no payload is moved even if there is room; for tests
	floats bool   // whether elements are floats; for tests of reductions by aggregators

	dataSeed uint64 // seed of the data; 0 means Seed
}

// Labels are names that the Result repeats. The Topology already has what they stand for.
type Labels struct {
	Placement string // placement of ranks; "" for the order of hosts
	Routing   string // routing; "" for D-mod-k
}

// Schedule says how an operation is cut into parts.
type Schedule struct {
	Chains    int    // M, clamped to what the operation can use; 0 means 1, or P beside a reduction
	Subgroups int    // S, clamped to what the operation can use
	ChainBy   string // "rank" or "rack"
	Chunk     int    // payload bytes of one datagram
	PSNBits   int    // bits of the immediate that number chunks; 0 means the protocol's default
	Radix     int    // radix of knomial; 0 means 4
	Segment   int64  // piece size of pipelined point-to-point algorithms; 0 means the algorithm's default
	// Plan, if set, replaces the plans of Algo, for schedules of other libraries.
	Plan func(p2p.Spec) (*p2p.Plan, error)
}

// Network describes links and switches.
type Network struct {
	Rate    float64       // bit/s of a host link
	Latency time.Duration // latency of one link, including its switch
	Queue   int64         // bytes that a switch port queues before it drops; 0 means lossless, with back-pressure
	Flow    string        // "none" or "credit"
	// Background is the traffic of other jobs, between leaves. It shares queues and links with bulk packets, and is
	// dropped by full queues. Nothing resends it.
	Background background.Spec
	// Tokens says that datagrams carry a token of their operation, as on IP. Stale datagrams then need no time
	// to drain, and small multicasts are eager (mcast.Eager).
	Tokens bool

	limits mcast.Limits // if set, what ranks assume of the network; for tests
}

// Receiver describes the receiving side of a host.
type Receiver struct {
	RecvQueue int64         // bytes that a host queues before it drops; 0 means unbounded
	RecvCost  time.Duration // host time per received chunk
	Gather    time.Duration // time for which receive workers let datagrams gather, to take several at once
	Late      time.Duration // mean delay of messages between receive workers and control threads
	Reaction  time.Duration // time before a host reacts to a reliable message or a received send
	Digest    bool          // whether ranks compare digests of the received data
	// Datapath is the receiver: "" or "ideal", or a value of dpa.ParseDatapath, which replaces RecvCost
	// and RecvQueue.
	Datapath string

	pace  int64 // ps per received chunk, from the datapath
	eager bool  // whether receive workers never postpone datagrams; for tests
}

// Faults describes everything that goes wrong.
type Faults struct {
	Loss      float64 // probability that a datagram is dropped at one receiver, which may be an aggregator
	LossAll   float64 // like Loss; in addition, reliable packets are delayed as by retransmissions
	Reorder   float64 // probability that a datagram is displaced by up to 16 places
	Duplicate float64 // probability that a datagram arrives twice
	// Straggle is the probability that a datagram is late by up to straggleAlphas alphas. Such a
	// datagram may arrive during a fetch.
	Straggle float64
	Stalls   []units.Stall // the NIC of a stopped host still queues arriving packets
	Crashes  []Crash
	// Aggregators are faults of the aggregators. Runs without such a reduction ignore them.
	Aggregators []AggregatorFault
	Detour      time.Duration // mean length of operating-system noise, which takes detourShare of the time
	Noise       time.Duration // mean delay before a host reacts to a reliable message or a received send
}

// An AggregatorFault stops an aggregator, for good or for a while. After a crash, it has forgotten everything.
type AggregatorFault struct {
	Node  int // number of its switch in the reduction tree: leaves first, the top last
	At    time.Duration
	For   time.Duration // 0: for good
	Crash bool
	Reset bool // whether its connections are reset, so that all ranks notice; otherwise only its silence tells them
}

// A Crash stops a host for good. If Reset is set, its peers' connections are reset, as when only the
// process dies. Otherwise the host silently vanishes from the network.
type Crash struct {
	Rank  int
	At    time.Duration
	Reset bool
}
