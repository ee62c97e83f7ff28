// Package sim runs many nodes over a simulated network in virtual time.
//
// The nodes are the production protocol code (internal/node, internal/mcast, internal/p2p). So is the
// code that decides where received data goes: hosts drive mcast.Intake, p2p.Inbox and the record of
// chunks as the engine does, in batches, with late reports and with claims before reads. Only the
// network, the clock and the hosts' memory are simulated. A run is single-threaded, and one seed
// determines everything random in it. The same Config therefore gives the same Result, bit for bit,
// except for Result.WallMS.
//
// # The network
//
// There is one event heap, one clock in picoseconds and one seeded generator. A link direction serves
// two traffic classes, control before bulk. A switch holds a packet in the input buffer of its link until
// the last copy has left, and a full buffer stops the link before it. On trees that route up and then
// down this cannot deadlock, with multicast either: a packet at one level waits only for the next level.
// Operations that share a NIC take turns.
//
// # The hosts
//
// A host has a receive queue and a cost per chunk, and can stop or die. Small runs move real payload; in
// large runs each chunk is a unique tag. Every slot of every receive buffer is verified either way.
// Datagrams of one sender may arrive as one super-packet, which the host scatters before it knows whether
// the guess of its worker is right. Reports and claims may take a random time between worker and node.
// Tokens differ from the engine's: those are unique, while the simulator's name a slot, so that runs
// also test the draining of slots.
package sim

import (
	"io"
	"time"

	"github.com/allcast/allcast/internal/topology"
)

// Config describes one simulated collective.
type Config struct {
	Op       string          // "broadcast", "allgather", "reduce-scatter", "allreduce" or "barrier"
	Algo     string          // one of Algorithms[Op], or "auto"
	Topology *topology.Graph // one rank per host, rank i on host i

	Bytes   int64   // bytes that one rank sends; in a reduce-scatter, bytes that one rank receives
	Counts  []int64 // allgather: bytes per rank; overrides Bytes
	Root    int     // broadcast only
	InPlace bool    // whether the send buffer is the rank's block of the receive buffer

	Chains    int    // M, clamped to what the operation can use; 0 means 1, or P beside a reduction
	Subgroups int    // S, clamped to what the operation can use
	ChainBy   string // "rank" or "rack"
	Chunk     int    // payload bytes of one datagram
	PSNBits   int    // bits of the immediate that number chunks; 0 means the protocol's default
	Radix     int    // radix of knomial; 0 means 4
	Segment   int64  // piece size of pipelined point-to-point algorithms; 0 means the algorithm's default

	Rate      float64       // bit/s of a host link
	Latency   time.Duration // latency of one link, including its switch
	Queue     int64         // bytes that a switch port queues before it drops; 0 means lossless, with back-pressure
	RecvQueue int64         // bytes that a host queues before it drops; 0 means unbounded
	RecvCost  time.Duration // host time per received chunk
	Gather    time.Duration // time for which receive workers let datagrams gather, to take several at once
	Late      time.Duration // mean delay of messages between receive workers and control threads
	Digest    bool          // whether ranks compare digests of the received data
	// Datapath is the receiver: "" or "ideal", or a value of dpa.ParseDatapath, which replaces RecvCost
	// and RecvQueue.
	Datapath string
	Flow     string // "none" or "credit"

	Loss      float64 // probability that a multicast datagram is dropped at one receiver
	LossAll   float64 // like Loss; in addition, reliable packets are delayed as by retransmissions
	Reorder   float64 // probability that a datagram is displaced by up to 16 places
	Duplicate float64 // probability that a datagram arrives twice
	// Straggle is the probability that a datagram is late by up to straggleAlphas alphas. Such a
	// datagram may arrive during a fetch.
	Straggle float64
	Stalls   []Stall
	Crashes  []Crash
	Detour   time.Duration // mean length of operating-system noise, which takes detourShare of the time
	Noise    time.Duration // mean delay before a host reacts to a reliable message or a received send

	Timeout  time.Duration // silence after which a rank is declared lost
	Deadline time.Duration // time after which the operation is aborted; 0 for never
	Seed     uint64

	reason string // reason why auto chose Algo
	pace   int64  // ps per received chunk, from the datapath

	Pcap io.Writer // capture of every packet that leaves a host, if set
}

// A Stall stops the processor of a host. Its NIC still queues arriving packets.
type Stall struct {
	Rank int
	At   time.Duration
	For  time.Duration
}

// A Crash stops a host for good. If Reset is set, its peers' connections are reset, as when only the
// process dies. Otherwise the host silently vanishes from the network.
type Crash struct {
	Rank  int
	At    time.Duration
	Reset bool
}

// Phases is the time that the last rank to complete spent in each phase.
type Phases struct {
	Barrier   float64 `json:"barrier_us"`
	Multicast float64 `json:"multicast_us"`
	Fetch     float64 `json:"fetch_us"`
	Handshake float64 `json:"handshake_us"`
	Transfer  float64 `json:"transfer_us,omitempty"` // the only phase of point-to-point algorithms
}

// A RankError describes the failure of the operation on one rank.
type RankError struct {
	Rank    int    `json:"rank"`
	Culprit int    `json:"culprit"`
	Op      string `json:"op"`
	Phase   string `json:"phase"`
	Missing string `json:"missing"`
	Reason  string `json:"reason"`
}

// A Part describes one of several concurrent collectives: its time, and the payload that crossed the
// boundary of its busiest rank (Figure 3).
type Part struct {
	Op       string  `json:"op"`
	TimeUS   float64 `json:"time_us"`
	Sent     int64   `json:"boundary_sent_bytes"`
	Received int64   `json:"boundary_received_bytes"`
}

// Result holds the measurements of a run. Times are microseconds of virtual time.
type Result struct {
	Op        string `json:"op"`
	Algo      string `json:"algo"`
	Nodes     int    `json:"nodes"`
	Topology  string `json:"topology"`
	Bytes     int64  `json:"bytes"`
	Seed      uint64 `json:"seed"`
	Chains    int    `json:"chains"`
	Subgroups int    `json:"subgroups"`
	Chunk     int    `json:"chunk"`
	Flow      string `json:"flow"`
	Datapath  string `json:"datapath"`       // "ideal", or the accelerator with all its parameters
	Auto      string `json:"auto,omitempty"` // reason why auto chose Algo

	TimeUS  float64 `json:"time_us"`
	BoundUS float64 `json:"bound_us"`
	// RecoveryUS is the time from the (possibly prevented) arrival of the last datagram to the end; 0 without multicast.
	RecoveryUS       float64 `json:"recovery_us"`
	CutoffUS         float64 `json:"cutoff_us"` // longest first cutoff of a rank: N/B + alpha after its barrier
	LinkBytes        int64   `json:"link_bytes"`
	LinkBytesBound   int64   `json:"link_bytes_bound"`
	PayloadLinkBytes int64   `json:"payload_link_bytes"`
	MaxCrossings     int     `json:"max_crossings"`
	SentBytes        int64   `json:"sent_bytes"` // bytes sent by the busiest rank, including headers

	// ByLink is LinkBytes by topology.LinkID, for drawings. The JSON omits it, because thousands of
	// numbers would hide the few that people read.
	ByLink        []uint64 `json:"-"`
	PayloadByLink []uint64 `json:"-"` // payload share of ByLink

	ChunksTotal     int64 `json:"chunks_total"` // chunks that the ranks had to receive
	DroppedChunks   int64 `json:"dropped_chunks"`
	DuplicateChunks int64 `json:"duplicate_chunks"`
	RepairedChunks  int64 `json:"repaired_chunks"`
	LateChunks      int64 `json:"late_chunks"`
	RootFetches     int64 `json:"fetches_served_by_root"` // chunks read from the rank that owns them
	MaxOwnerReads   int   `json:"max_owner_reads"`        // maximum number of reads of one chunk from its owner

	Parts []Part `json:"parts,omitempty"` // one per collective, if there are several

	Verified  bool   `json:"verified"`
	Wrong     int    `json:"wrong"`               // number of ranks with wrong data
	Violation string `json:"violation,omitempty"` // first broken rule, such as an access to a freed buffer

	Events int64       `json:"events"`
	WallMS float64     `json:"wall_ms"`
	Phases Phases      `json:"phases"`
	Errors []RankError `json:"errors"`
}
