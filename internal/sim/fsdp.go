package sim

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/allcast/allcast/internal/model"
)

// FSDPConfig describes one training step of a fully sharded model (Section II-A). It uses the network
// and the seed of the embedded Config. Algo is one of FSDPAlgorithms. Chunk and Segment may be 0.
type FSDPConfig struct {
	Config
	Layers     int
	LayerBytes int64         // size of the parameters of a layer, over all shards
	Compute    time.Duration // forward time of a layer; backward takes twice that
	Prefetch   int           // layers gathered ahead of the one being computed
}

// FSDPAlgorithms lists the pairs of Allgather and Reduce-Scatter that can be simulated.
func FSDPAlgorithms() []string { return Algorithms[bothAtOnce] }

// A Span is one activity of a rank in a step.
type Span struct {
	Kind     string  `json:"kind"` // "compute", "allgather" or "reduce-scatter"
	Layer    int     `json:"layer"`
	Backward bool    `json:"backward"`
	Start    float64 `json:"start_us"`
	End      float64 `json:"end_us"`
}

// FSDPResult holds the measurements of a step. Times are microseconds of virtual time, on the rank that
// ended last. Compute and exposed times add up to the step.
type FSDPResult struct {
	Subject
	Layers     int   `json:"layers"`
	LayerBytes int64 `json:"layer_bytes"`
	ShardBytes int64 `json:"shard_bytes"`
	Prefetch   int   `json:"prefetch"`
	Chunk      int   `json:"chunk"`
	Segment    int64 `json:"segment"` // segment size of rings

	StepTimes
	SentBytes     int64 `json:"sent_bytes"`     // bytes sent by the busiest rank, with headers
	ReceivedBytes int64 `json:"received_bytes"` // bytes received by the busiest rank
	// BackgroundBytes counts bytes of other jobs on all links.
	BackgroundBytes int64 `json:"background_bytes,omitempty"`

	Collectives    int   `json:"collectives"` // collectives that all ranks completed
	RepairedChunks int64 `json:"repaired_chunks"`
	Verdict

	Events   int64       `json:"events"`
	WallMS   float64     `json:"wall_ms"`
	Seed     uint64      `json:"seed"`
	Errors   []RankError `json:"errors"`
	Timeline []Span      `json:"timeline"` // spans of rank 0, in order of their ends
}

// StepTimes says where the time of a step went. A failed step has no times.
type StepTimes struct {
	StepUS                 float64 `json:"step_us"`
	ComputeUS              float64 `json:"compute_us"`
	BubblePct              float64 `json:"bubble_pct"`                // share of the step without compute
	ExposedAllgatherUS     float64 `json:"exposed_allgather_us"`      // time spent waiting for parameters
	ExposedReduceScatterUS float64 `json:"exposed_reduce_scatter_us"` // time after the last compute
	BackwardUS             float64 `json:"backward_us"`               // time from the end of the last forward compute
	AllgatherUS            float64 `json:"allgather_us"`              // time with an Allgather in flight
	ReduceScatterUS        float64 `json:"reduce_scatter_us"`         // time with a Reduce-Scatter in flight
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

// prepare sets up a step that all ranks have started.
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
		if err := w.addComm(id, s.members); err != nil {
			return nil, err
		}
	}
	for _, p := range parts {
		if _, err := w.collective(1, p, s.members); err != nil {
			return nil, badConfig("%w", err)
		}
	}
	w.step = s
	for r := range s.ranks {
		w.pending++ // counts the step itself: between collectives nothing else is pending
		s.advance(r)
	}
	return s, nil
}

// completeStep sets defaults and checks the configuration.
func (cfg *FSDPConfig) completeStep() (parts []part, err error) {
	switch {
	case cfg.Topology == nil:
		return nil, badConfig("no topology")
	case cfg.Layers < 1 || cfg.Layers > maxLayers:
		return nil, badConfig("%d layers: must be 1 to %d", cfg.Layers, maxLayers)
	case cfg.LayerBytes < 1 || cfg.LayerBytes > maxLayerBytes:
		return nil, badConfig("layers of %d bytes: must be 1 to %d", cfg.LayerBytes, int64(maxLayerBytes))
	case cfg.Compute < 0 || cfg.Prefetch < 0:
		return nil, badConfig("compute time and prefetch depth must be 0 or more")
	case len(cfg.Stalls)+len(cfg.Crashes)+len(cfg.Aggregators) > 0 || cfg.Pcap != nil:
		return nil, badConfig("a training step takes no stalls, no crashes and no capture")
	}
	p := int64(cfg.Topology.Hosts)
	cfg.Op, cfg.Bytes = bothAtOnce, (cfg.LayerBytes+p-1)/p
	// One tree per spine: a single one would occupy the buffers of its spine while the others idle.
	cfg.Subgroups = cmp.Or(cfg.Subgroups, model.Trees(cfg.Topology))
	if cfg.Chunk == 0 {
		cfg.Chunk = coarseChunk(cfg.LayerBytes, p)
	}
	if cfg.Segment == 0 {
		// Rings forward in pieces, as in every library. Without pieces, each step would pay for
		// storing a whole chunk at each switch, which is an artefact of coarse chunks.
		chunk := int64(cfg.Chunk)
		cfg.Segment = (cfg.Bytes/4 + chunk - 1) / chunk * chunk
	}
	cfg.Config, parts, err = cfg.complete()
	if err != nil {
		return nil, err
	}
	if t := time.Duration(cfg.inSequence() / 1000); t > maxStep {
		return nil, badConfig("a step may take %v or more: at most %v can be simulated", t, maxStep)
	}
	return parts, nil
}

// inSequence returns the time of the step without any overlap, in picoseconds, clamped to twice the
// longest step.
func (cfg *FSDPConfig) inSequence() int64 {
	wire := float64(cfg.LayerBytes) * 8e12 / cfg.Rate
	ps := 3 * float64(cfg.Layers) * (wire + float64(cfg.Compute.Nanoseconds())*1000)
	return int64(min(ps, 2*1000*float64(maxStep)))
}

// Limits of a step: 63 bits of picoseconds are a hundred days, and time limits are multiples of the
// expected time.
const (
	maxLayers     = 10000
	maxLayerBytes = 1 << 40
	maxStep       = time.Hour
)

// chunkBudget is the wanted product of chunks per layer and ranks, which determines the cost of a run.
// minChunks is the minimum number of chunks per shard: fewer would not fill pipelines through switches.
const (
	chunkBudget = 1 << 17
	minChunks   = 8
)

// coarseChunk picks the chunk size of a scale model. Real networks carry 4 KiB per packet, but a step
// moves hundreds of gigabytes. Bytes over rates determine the time, and the chunk size does not change
// that as long as a shard has many chunks.
func coarseChunk(layer, p int64) int {
	want := uint64(layer*p/chunkBudget) + 1
	limit := uint64((layer+p-1)/p/minChunks) + 1
	up := uint64(1) << bits.Len64(want-1)
	down := uint64(1) << (bits.Len64(limit) - 1)
	return int(max(4<<10, min(up, down, 16<<20)))
}
