package sim

import (
	"fmt"
	"math/bits"
	"time"
)

// FSDPConfig describes one training step of a fully sharded model (Section II-A).
// Of the embedded Config it uses the network and the seed; Algo is one of
// FSDPAlgorithms, and Chunk and Segment may be 0.
type FSDPConfig struct {
	Config
	Layers     int
	LayerBytes int64         // parameters of a layer, all shards together
	Compute    time.Duration // forward time of a layer; backward takes twice that
	Prefetch   int           // layers gathered ahead of the one being computed
}

// FSDPAlgorithms lists the pairs of Allgather and Reduce-Scatter that can be simulated.
func FSDPAlgorithms() []string { return Algorithms[bothAtOnce] }

// Span is one thing that a rank did in a step.
type Span struct {
	Kind     string  `json:"kind"` // "compute", "allgather" or "reduce-scatter"
	Layer    int     `json:"layer"`
	Backward bool    `json:"backward"`
	Start    float64 `json:"start_us"`
	End      float64 `json:"end_us"`
}

// FSDPResult is what a step measured. Times are microseconds of virtual time and
// those of the rank that ended last: compute and what is exposed add up to the step.
type FSDPResult struct {
	Op         string `json:"op"`
	Algo       string `json:"algo"`
	Nodes      int    `json:"nodes"`
	Topology   string `json:"topology"`
	Layers     int    `json:"layers"`
	LayerBytes int64  `json:"layer_bytes"`
	ShardBytes int64  `json:"shard_bytes"`
	Prefetch   int    `json:"prefetch"`
	Chunk      int    `json:"chunk"`
	Segment    int64  `json:"segment"` // of rings

	StepUS                 float64 `json:"step_us"`
	ComputeUS              float64 `json:"compute_us"`
	BubblePct              float64 `json:"bubble_pct"`                // of the step that is not compute
	ExposedAllgatherUS     float64 `json:"exposed_allgather_us"`      // waited for parameters
	ExposedReduceScatterUS float64 `json:"exposed_reduce_scatter_us"` // after the last compute
	BackwardUS             float64 `json:"backward_us"`               // from the end of the last forward compute
	AllgatherUS            float64 `json:"allgather_us"`              // one was under way
	ReduceScatterUS        float64 `json:"reduce_scatter_us"`         // likewise
	SentBytes              int64   `json:"sent_bytes"`                // by the busiest rank, headers included
	ReceivedBytes          int64   `json:"received_bytes"`            // likewise

	Collectives    int    `json:"collectives"` // that all ranks completed
	RepairedChunks int64  `json:"repaired_chunks"`
	Verified       bool   `json:"verified"`
	Wrong          int    `json:"wrong"`
	Violation      string `json:"violation,omitempty"`

	Events   int64       `json:"events"`
	WallMS   float64     `json:"wall_ms"`
	Seed     uint64      `json:"seed"`
	Errors   []RankError `json:"errors"`
	Timeline []Span      `json:"timeline"` // of rank 0, in order of ends
}

// RunFSDP simulates one training step.
func RunFSDP(cfg FSDPConfig) (*FSDPResult, error) {
	began := time.Now()
	s, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	s.w.loop(s.w.limit() + 8*cfg.inSequence())
	r := s.result(&cfg)
	r.WallMS = float64(time.Since(began).Microseconds()) / 1000
	return r, nil
}

// prepare brings a step to where all ranks have begun it.
func (cfg *FSDPConfig) prepare() (*trainingStep, error) {
	parts, err := cfg.completeStep()
	if err != nil {
		return nil, err
	}
	w, err := newWorld(cfg.Config)
	if err != nil {
		return nil, err
	}
	s := newTrainingStep(w, cfg, parts)
	for id := range uint32(comms) {
		for _, h := range w.hosts {
			if err := h.node.AddComm(id, s.members); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range parts {
		if _, err := w.collective(1, p, s.members); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	w.step = s
	for r := range s.ranks {
		w.pending++ // the step itself: between collectives nothing else is pending
		s.advance(r)
	}
	return s, nil
}

// completeStep fills in defaults and checks.
func (cfg *FSDPConfig) completeStep() (parts []part, err error) {
	bad := func(format string, args ...any) ([]part, error) {
		return nil, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	switch {
	case cfg.Topology == nil:
		return bad("no topology")
	case cfg.Layers < 1 || cfg.Layers > maxLayers:
		return bad("%d layers: must be 1 to %d", cfg.Layers, maxLayers)
	case cfg.LayerBytes < 1 || cfg.LayerBytes > maxLayerBytes:
		return bad("layers of %d bytes: must be 1 to %d", cfg.LayerBytes, int64(maxLayerBytes))
	case cfg.Compute < 0 || cfg.Prefetch < 0:
		return bad("compute time and prefetch depth must be 0 or more")
	case len(cfg.Stalls)+len(cfg.Crashes) > 0 || cfg.Pcap != nil:
		return bad("a training step takes no stalls, no crashes and no capture")
	}
	p := int64(cfg.Topology.Hosts)
	cfg.Op, cfg.Bytes = bothAtOnce, (cfg.LayerBytes+p-1)/p
	cfg.Subgroups = max(1, cfg.Subgroups)
	if cfg.Chunk == 0 {
		cfg.Chunk = coarseChunk(cfg.LayerBytes, p)
	}
	if cfg.Segment == 0 {
		// Rings forward in pieces, as every library does: without, each of their
		// steps would pay for storing a chunk at each switch, which is an artefact
		// of coarse chunks.
		chunk := int64(cfg.Chunk)
		cfg.Segment = (cfg.Bytes/4 + chunk - 1) / chunk * chunk
	}
	cfg.Config, parts, err = cfg.complete()
	if err != nil {
		return nil, err
	}
	if t := time.Duration(cfg.inSequence() / 1000); t > maxStep {
		return bad("a step may take %v or more: at most %v can be simulated", t, maxStep)
	}
	return parts, nil
}

// inSequence is how long the step would take with nothing at the same time, in
// picoseconds; no more than twice the longest step.
func (cfg *FSDPConfig) inSequence() int64 {
	wire := float64(cfg.LayerBytes) * 8e12 / cfg.Rate
	ps := 3 * float64(cfg.Layers) * (wire + float64(cfg.Compute.Nanoseconds())*1000)
	return int64(min(ps, 2*1000*float64(maxStep)))
}

// The largest step: picoseconds in 63 bits are a hundred days, and limits are
// multiples of what is expected.
const (
	maxLayers     = 10000
	maxLayerBytes = 1 << 40
	maxStep       = time.Hour
)

// Chunks of a layer times ranks, which is what a run costs, and the least chunks of
// a shard: fewer, and pipelines through switches are not filled.
const (
	chunkBudget = 1 << 17
	leastChunks = 8
)

// coarseChunk picks the chunk of a scale model: real networks carry 4 KiB at a
// time, but a step moves hundreds of gigabytes. What takes time is bytes over
// rates, which chunks do not change as long as there are many of them in a shard.
func coarseChunk(layer, p int64) int {
	want := uint64(layer*p/chunkBudget) + 1
	most := uint64((layer+p-1)/p/leastChunks) + 1
	up := uint64(1) << bits.Len64(want-1)
	down := uint64(1) << (bits.Len64(most) - 1)
	return int(max(4<<10, min(up, down, 16<<20)))
}
