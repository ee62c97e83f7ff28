// Package sim runs many nodes over a simulated network in virtual time.
//
// The nodes are the real protocol code (internal/node, internal/mcast, internal/p2p), and so is
// the code that decides where received data goes: hosts drive protocol.Intake, p2p.Inbox and the
// record of chunks as the engine does, in batches, with late reports and with claims before reads.
// Only the network, the clock and the hosts' memory are simulated. A run is
// single-threaded and everything random in it comes from one seed, so the same
// Config gives the same Result, bit for bit (Result.WallMS aside).
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

	Bytes   int64   // what one rank sends; in a reduce-scatter, what one rank receives
	Counts  []int64 // allgather with a size per rank; overrides Bytes
	Root    int     // broadcast only
	InPlace bool    // the send buffer is the rank's block of the receive buffer

	Chains    int    // M; more than the op can use is clamped; 0: 1, or P where a reduction runs at the same time
	Subgroups int    // S; likewise
	ChainBy   string // "rank" or "rack"
	Chunk     int    // payload bytes of one datagram
	PSNBits   int    // bits of the immediate that number chunks; 0: the protocol's default
	Radix     int    // of knomial; 0: 4
	Segment   int64  // point-to-point algorithms pipeline in pieces of this size; 0: the algorithm's default

	Rate      float64       // of a host link, bit/s
	Latency   time.Duration // of one link, its switch included
	Queue     int64         // bytes a switch port queues before it drops; 0: lossless, with back-pressure
	RecvQueue int64         // bytes a host queues before it drops; 0: unbounded
	RecvCost  time.Duration // host time for each chunk received
	Gather    time.Duration // receive workers let datagrams gather for so long, and take several at once
	Late      time.Duration // receive workers and control threads hear of each other's work so much later, on average
	Digest    bool          // ranks compare what they received with a neighbour
	Datapath  string        // who receives: "" or "ideal", or what dpa.ParseDatapath takes, which sets what RecvCost and RecvQueue do
	Flow      string        // "none" or "credit"

	Loss      float64 // a multicast datagram is dropped at one receiver, independently
	LossAll   float64 // likewise, and reliable packets are delayed as by a retransmission
	Reorder   float64 // a datagram is displaced by up to 16 places
	Duplicate float64 // a datagram arrives twice
	Straggle  float64 // a datagram is late by up to straggleAlphas alphas, and may arrive while it is fetched
	Stalls    []Stall
	Crashes   []Crash
	Detour    time.Duration // hosts stop for this long on average, detourShare of the time: operating-system noise
	Noise     time.Duration // mean delay before a host reacts to a reliable message or a send that has arrived

	Timeout  time.Duration // a silent rank is declared lost after this long
	Deadline time.Duration // the operation is aborted after this long; 0: never
	Seed     uint64

	reason string // why auto chose Algo
	pace   int64  // of the datapath: ps for each chunk received

	Pcap io.Writer // when set, every packet that leaves a host is recorded
}

// A Stall stops a host's processor: its NIC still queues what arrives.
type Stall struct {
	Rank int
	At   time.Duration
	For  time.Duration
}

// A Crash stops a host for good. A silent one just vanishes from the network;
// otherwise its peers' connections are reset, as when only the process dies.
type Crash struct {
	Rank  int
	At    time.Duration
	Reset bool
}

// Phases is where the time of the rank that completed last went.
type Phases struct {
	Barrier   float64 `json:"barrier_us"`
	Multicast float64 `json:"multicast_us"`
	Fetch     float64 `json:"fetch_us"`
	Handshake float64 `json:"handshake_us"`
	Transfer  float64 `json:"transfer_us,omitempty"` // point-to-point algorithms have no other
}

// RankError is how the operation ended on a rank that did not complete it.
type RankError struct {
	Rank    int    `json:"rank"`
	Culprit int    `json:"culprit"`
	Op      string `json:"op"`
	Phase   string `json:"phase"`
	Missing string `json:"missing"`
	Reason  string `json:"reason"`
}

// Part is one of several collectives that ran at once: its time, and the payload
// that crossed the boundary of its busiest rank (Figure 3).
type Part struct {
	Op       string  `json:"op"`
	TimeUS   float64 `json:"time_us"`
	Sent     int64   `json:"boundary_sent_bytes"`
	Received int64   `json:"boundary_received_bytes"`
}

// Result is what a run measured. Times are microseconds of virtual time.
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
	Datapath  string `json:"datapath"`       // "ideal", or the accelerator with all that it goes by
	Auto      string `json:"auto,omitempty"` // why auto chose Algo

	TimeUS  float64 `json:"time_us"`
	BoundUS float64 `json:"bound_us"`
	// From when the last datagram reached a host, or would have, to the end; 0 without multicast.
	RecoveryUS       float64 `json:"recovery_us"`
	CutoffUS         float64 `json:"cutoff_us"` // the longest first cutoff of a rank: N/B + alpha after its barrier
	LinkBytes        int64   `json:"link_bytes"`
	LinkBytesBound   int64   `json:"link_bytes_bound"`
	PayloadLinkBytes int64   `json:"payload_link_bytes"`
	MaxCrossings     int     `json:"max_crossings"`
	SentBytes        int64   `json:"sent_bytes"` // by the busiest rank, headers included

	// ByLink is LinkBytes by topology.LinkID. It is for drawing: thousands of numbers
	// would hide the few that people read in the JSON.
	ByLink        []uint64 `json:"-"`
	PayloadByLink []uint64 `json:"-"` // of these, payload

	ChunksTotal     int64 `json:"chunks_total"` // chunks the ranks had to receive
	DroppedChunks   int64 `json:"dropped_chunks"`
	DuplicateChunks int64 `json:"duplicate_chunks"`
	RepairedChunks  int64 `json:"repaired_chunks"`
	LateChunks      int64 `json:"late_chunks"`
	RootFetches     int64 `json:"fetches_served_by_root"` // chunks read from the rank that owns them
	MaxOwnerReads   int   `json:"max_owner_reads"`        // how often the most-read chunk was read from its owner

	Parts []Part `json:"parts,omitempty"` // of several collectives at once

	Verified  bool   `json:"verified"`
	Wrong     int    `json:"wrong"`               // ranks whose data was wrong
	Violation string `json:"violation,omitempty"` // a broken rule, such as a buffer touched after it was free

	Events int64       `json:"events"`
	WallMS float64     `json:"wall_ms"`
	Phases Phases      `json:"phases"`
	Errors []RankError `json:"errors"`
}
