package sim

import (
	"cmp"
	"fmt"

	"github.com/allcast/allcast/internal/node"
	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// Phases is the time that the last rank to complete spent in each phase.
type Phases struct {
	Barrier   float64 `json:"barrier_us"`
	Multicast float64 `json:"multicast_us"`
	Fetch     float64 `json:"fetch_us"`
	Handshake float64 `json:"handshake_us"`
	Transfer  float64 `json:"transfer_us,omitempty"` // of point-to-point algorithms, and of sums by aggregators
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

// Subject names a run.
type Subject struct {
	Op       string `json:"op"`
	Algo     string `json:"algo"`
	Nodes    int    `json:"nodes"`
	Topology string `json:"topology"`

	// What differs from a plain network; left out where nothing does.
	Oversubscribe float64 `json:"oversubscribe,omitempty"`
	Placement     string  `json:"placement,omitempty"`
	Routing       string  `json:"routing,omitempty"`
	Background    string  `json:"background,omitempty"`
}

// Verdict says whether the data of a run was right.
type Verdict struct {
	Verified  bool   `json:"verified"`
	Wrong     int    `json:"wrong"`               // number of ranks with wrong data
	Violation string `json:"violation,omitempty"` // first broken rule, such as an access to a freed buffer
}

// Result holds the measurements of a run. Times are microseconds of virtual time.
type Result struct {
	Subject
	Bytes     int64  `json:"bytes"`
	Seed      uint64 `json:"seed"`
	Chains    int    `json:"chains"`
	Subgroups int    `json:"subgroups"`
	Chunk     int    `json:"chunk"`
	Flow      string `json:"flow"`
	Datapath  string `json:"datapath"`       // "ideal", or the accelerator with all its parameters
	Auto      string `json:"auto,omitempty"` // reason why auto chose Algo

	Times
	Traffic
	ChunkCounts
	Parts []Part `json:"parts,omitempty"` // one per collective, if there are several
	Verdict

	Events int64   `json:"events"`
	WallMS float64 `json:"wall_ms"`
	Phases Phases  `json:"phases"`
	// Fallback says why aggregators did not make all sums, on the first rank where they did not.
	Fallback string      `json:"fallback,omitempty"`
	Errors   []RankError `json:"errors"`
}

// Times holds the times of the whole run.
type Times struct {
	TimeUS  float64 `json:"time_us"`
	BoundUS float64 `json:"bound_us"`
	// LineRateShare is the time that a host link at full rate needs for the payload that the busiest rank must send or
	// receive, divided by TimeUS.
	LineRateShare float64 `json:"line_rate_share"`
	// RecoveryUS is the time from the (possibly prevented) arrival of the last datagram to the end; 0 without multicast.
	RecoveryUS float64 `json:"recovery_us"`
	CutoffUS   float64 `json:"cutoff_us"` // longest first cutoff of a rank: N/B + alpha after its barrier
}

// Traffic counts bytes on links.
type Traffic struct {
	LinkBytes        int64 `json:"link_bytes"`
	LinkBytesBound   int64 `json:"link_bytes_bound"`
	PayloadLinkBytes int64 `json:"payload_link_bytes"`
	MaxCrossings     int   `json:"max_crossings"`
	SentBytes        int64 `json:"sent_bytes"`                 // bytes sent by the busiest rank, including headers
	BackgroundBytes  int64 `json:"background_bytes,omitempty"` // bytes of other jobs, which no other field counts

	// TierBytes is PayloadLinkBytes by tier, under the names of topology.Graph.Tier.
	TierBytes map[string]uint64 `json:"tier_bytes"`

	// ByLink is LinkBytes by topology.LinkID, for drawings. The JSON omits it, because thousands of
	// numbers would hide the few that people read.
	ByLink        []uint64 `json:"-"`
	PayloadByLink []uint64 `json:"-"` // payload share of ByLink
}

// ChunkCounts counts chunks, over all ranks.
type ChunkCounts struct {
	ChunksTotal     int64 `json:"chunks_total"` // chunks that the ranks had to receive
	DroppedChunks   int64 `json:"dropped_chunks"`
	DuplicateChunks int64 `json:"duplicate_chunks"`
	RepairedChunks  int64 `json:"repaired_chunks"`
	LateChunks      int64 `json:"late_chunks"`
	RootFetches     int64 `json:"fetches_served_by_root"` // chunks read from the rank that owns them
	MaxOwnerReads   int   `json:"max_owner_reads"`        // maximum number of reads of one chunk from its owner
}

// result collects the measurements of a run. With several concurrent collectives, times are those of
// the last to end, and counts per chunk are left out.
func (w *world) result(calls []*collective) *Result {
	r := &Result{
		Subject: w.cfg.subject(),
		Bytes:   w.cfg.Bytes, Seed: w.cfg.Seed, Chunk: w.cfg.Chunk, Flow: w.cfg.Flow, Datapath: w.cfg.Datapath,
		Auto: w.cfg.reason, Traffic: w.traffic(calls), Events: w.events, Errors: []RankError{},
	}
	r.RootFetches, r.MaxOwnerReads, r.DroppedChunks = w.rootFetches, w.maxOwnerReads, w.dropped
	if plan := calls[0].plan; plan != nil {
		r.Chains, r.Subgroups = max(1, plan[0].Chains()), plan[0].Subgroups()
	}
	for _, h := range w.hosts {
		s := h.node.Stats()
		r.DuplicateChunks += int64(s.Duplicates + h.repeatedSums)
		r.RepairedChunks += int64(s.Repaired)
		r.LateChunks += int64(s.Late)
	}
	for _, c := range calls {
		r.ChunksTotal += c.toReceive()
		w.outcomes(r, c)
		if len(calls) > 1 {
			r.Parts = append(r.Parts, c.part())
		}
	}
	if w.failures == 0 && w.lingering > 0 {
		w.violate("operations lingered for ever")
	}
	r.Verdict = w.verdict(len(r.Errors) == 0)
	if w.lastArrival > 0 {
		r.RecoveryUS = max(0, r.TimeUS-microseconds(w.lastArrival))
	}
	if w.g.Hosts > 1 {
		r.BoundUS = w.bound(calls)
	}
	if r.TimeUS > 0 {
		r.LineRateShare = w.lineTime(calls) / r.TimeUS
	}
	return r
}

// subject names a run.
func (cfg *Config) subject() Subject {
	s := Subject{
		Op: cfg.Op, Algo: cfg.Algo, Nodes: cfg.Topology.Hosts, Topology: cfg.Topology.Name,
		Placement: cfg.Placement, Routing: cfg.Routing, Background: cfg.Background.String(),
	}
	if k := cfg.Topology.Oversubscription(); k > 1 {
		s.Oversubscribe = k
	}
	return s
}

// microseconds converts virtual time.
func microseconds(ps int64) float64 { return float64(ps) / 1e6 }

func (w *world) verdict(ended bool) Verdict {
	return Verdict{Verified: w.wrong == 0 && w.violation == "" && ended, Wrong: w.wrong, Violation: w.violation}
}

func (w *world) traffic(calls []*collective) Traffic {
	links := w.links[:len(w.g.Links)]
	t := Traffic{ByLink: make([]uint64, len(links)), PayloadByLink: make([]uint64, len(links))}
	for i, l := range links {
		t.BackgroundBytes += l.foreign
		t.ByLink[i], t.PayloadByLink[i] = uint64(l.bytes), uint64(l.payload)
		t.LinkBytes += l.bytes
		t.PayloadLinkBytes += l.payload
	}
	t.TierBytes = w.g.ByTier(t.PayloadByLink)
	if w.crossings != nil {
		t.MaxCrossings = w.crossings.maxCount
	}
	for _, h := range w.hosts {
		t.SentBytes = max(t.SentBytes, h.sent)
	}
	for _, c := range calls {
		bound := c.total() * int64(w.trees[0].Links(0))
		if c.kind == wire.Allreduce {
			bound *= 2 // up and down
		}
		t.LinkBytesBound += bound
		c.exchange.forEachCrossing(func(from, to int, n int64) {
			t.LinkBytesBound += n * int64(w.g.Hops(c.members[from], c.members[to]))
		})
	}
	return t
}

// toReceive returns the number of chunks that all ranks together have to receive.
func (c *collective) toReceive() int64 {
	chunks, p := int64(c.chunks()), int64(len(c.members))
	switch {
	case p == 1:
		return 0
	case c.exchange != nil:
		c.exchange.forEachCrossing(func(_, _ int, n int64) { chunks += (n + c.chunk - 1) / c.chunk })
		return chunks
	case c.byNetwork() && c.scatters:
		return chunks // each rank receives its own block
	case c.byNetwork():
		return chunks * p // its own block, and those of the others
	case c.kind == wire.Allreduce:
		return 2 * chunks * (p - 1) // once to add, once as the result
	}
	return chunks * (p - 1)
}

// part describes one of several collectives.
func (c *collective) part() Part {
	p := Part{Op: c.kind.String()}
	for i, o := range c.ranks {
		p.TimeUS = max(p.TimeUS, microseconds(o.at))
		p.Sent = max(p.Sent, c.sent[i])
		p.Received = max(p.Received, c.received[i])
	}
	return p
}

// outcomes adds the ends of a collective on all ranks.
func (w *world) outcomes(r *Result, c *collective) {
	for i, o := range c.ranks {
		switch {
		case !o.ended && !w.hosts[c.members[i]].dead: // a dead host reports nothing
			r.Errors = append(r.Errors, RankError{
				Rank: i, Culprit: -1, Op: w.cfg.Op, Phase: "unknown", Missing: "unknown",
				Reason: fmt.Sprintf("still running after %d s", w.now/1e12),
			})
		case o.err != nil:
			r.Errors = append(r.Errors, rankError(i, o.err))
		}
		r.CutoffUS = max(r.CutoffUS, float64(o.spent.Cutoff)/1e3)
		if !o.ended {
			continue
		}
		r.Fallback = cmp.Or(r.Fallback, o.fallback)
		if !c.mem[i].intact() {
			w.violate("a buffer was written after it was free")
		}
		if t := microseconds(o.at); t > r.TimeUS {
			r.TimeUS, r.Phases = t, c.phases(o.spent)
		}
	}
}

func rankError(rank int, e *node.Error) RankError {
	return RankError{
		Rank: rank, Culprit: e.Culprit, Op: e.Op.String(), Phase: e.Phase.String(),
		Missing: e.Missing, Reason: e.Reason.String(),
	}
}

func (c *collective) phases(s node.Spent) Phases {
	us := func(t step.Time) float64 { return float64(t) / 1e3 }
	p := Phases{Barrier: us(s.Barrier), Multicast: us(s.Multicast), Fetch: us(s.Fetch), Handshake: us(s.Handshake)}
	switch {
	case c.plan != nil:
	case c.byNetwork():
		p.Transfer, p.Multicast = p.Multicast, 0
	default:
		p = Phases{Transfer: us(s.Multicast)}
	}
	return p
}
