package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// Baseline is the pair of algorithms that others are compared with.
const Baseline = "ring+ring"

// Schema is the version of the JSON object of a plan.
const Schema = 1

// Config is a question.
type Config struct {
	Network    Network
	Placements []Placement
	Model      Model
	Algorithms []string // of sim.FSDPAlgorithms; Baseline is always among the answers
	Seed       uint64
	Progress   func(done, all int) // may be nil; called after each simulation
}

// Placement is a placement of ranks with the name that the user gave it.
type Placement struct {
	Name string
	Host []int // by rank
}

// Plan is the answer. Field names are those of the JSON object.
type Plan struct {
	Schema   int          `json:"schema"`
	Network  NetworkFacts `json:"network"`
	Model    ModelFacts   `json:"model"`
	Placed   []Placed     `json:"placements"`
	Switches Switches     `json:"switches"`
	Advice   []string     `json:"recommendation"`
	Notes    []string     `json:"notes"` // what the numbers leave out
	Seed     uint64       `json:"seed"`
	Events   int64        `json:"events"` // of all simulations
}

// NetworkFacts repeats the network of the question.
type NetworkFacts struct {
	Topology         string  `json:"topology"`
	Hosts            int     `json:"hosts"`
	HostsPerLeaf     int     `json:"hosts_per_leaf"`
	Leaves           int     `json:"leaves"`
	Spines           int     `json:"spines_per_leaf"`
	Oversubscription float64 `json:"oversubscription"`
	RateGbit         float64 `json:"host_rate_gbit"`
	UplinkGbit       float64 `json:"uplink_rate_gbit"`
	LatencyUS        float64 `json:"latency_us"`
}

// ModelFacts repeats the model of the question.
type ModelFacts struct {
	Params     float64 `json:"params"`
	Layers     int     `json:"layers"`
	DType      string  `json:"dtype"`
	LayerBytes int64   `json:"layer_bytes"`
	Shards     int     `json:"shards"`
	ComputeMS  float64 `json:"compute_ms"` // forward, per layer
}

// Placed is the answer for one placement.
type Placed struct {
	Placement string  `json:"placement"`
	Rows      []Row   `json:"algorithms"`
	Curves    []Curve `json:"curves"`
}

// Row is the answer for one pair of algorithms.
type Row struct {
	Algo      string `json:"algo"`
	Step      Number `json:"step_ms"`
	Exposed   Number `json:"exposed_ms"` // time of communication that no computation hides
	Allgather Number `json:"allgather_line_rate_pct"`
	Speedup   Number `json:"speedup"` // over Baseline
	// BreakEven is the oversubscription from which the step is faster than Baseline's by 5 %. It is missing if there is
	// none up to 16, or if the network has one switch only.
	BreakEven *Number   `json:"break_even_oversubscription,omitempty"`
	Tiers     []Tier    `json:"links"`
	Simulated Simulated `json:"simulated"`
}

// Simulated describes the simulation that a row comes from.
type Simulated struct {
	Hosts    int     `json:"hosts"`
	Topology string  `json:"topology"`
	Layers   []int   `json:"layers"`          // of each run
	Distance float64 `json:"bound_error_pct"` // by how much its busiest links take longer or shorter
	Excess   float64 `json:"extra_bytes_pct"` // of the busiest host, beyond the payload on the graph
}

// Make answers a question. It runs simulations on all processors. If the context ends, so does Make after the
// simulations that are running.
func Make(ctx context.Context, cfg Config) (*Plan, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &simulator{network: &cfg.Network, model: &cfg.Model, seed: cfg.Seed, progress: cfg.Progress}
	s.results = map[string]estimate{}
	if s.progress == nil {
		s.progress = func(int, int) {}
	}
	pairs := append([]string{Baseline}, slices.DeleteFunc(slices.Clone(cfg.Algorithms), func(pair string) bool {
		return pair == Baseline
	})...)
	plan := &Plan{Schema: Schema, Seed: cfg.Seed}
	for _, placement := range cfg.Placements {
		g, err := cfg.Network.Graph.Place(placement.Host)
		if err != nil {
			return nil, fmt.Errorf("placement %s: %w", placement.Name, err)
		}
		placed, err := s.placed(ctx, g, pairs)
		if err != nil {
			return nil, err
		}
		placed.Placement = placement.Name
		plan.Placed = append(plan.Placed, *placed)
		plan.Network, plan.Switches = cfg.Network.facts(g), switchesFor(g)
		plan.Model = cfg.Model.facts(g.Hosts)
	}
	for _, e := range s.results {
		plan.Events += e.events
	}
	plan.Notes = notes(plan)
	plan.Advice = advise(plan)
	return plan, nil
}

func (cfg *Config) check() error {
	if cfg.Network.Graph == nil || len(cfg.Placements) == 0 {
		return errors.New("a plan needs a network and a placement")
	}
	ranks := len(cfg.Placements[0].Host)
	for _, p := range cfg.Placements {
		if len(p.Host) != ranks {
			return fmt.Errorf("placement %s has %d ranks, and placement %s has %d",
				p.Name, len(p.Host), cfg.Placements[0].Name, ranks)
		}
	}
	if ranks < 2 {
		return errors.New("one rank alone exchanges nothing: want 2 or more")
	}
	for _, pair := range cfg.Algorithms {
		if !slices.Contains(sim.FSDPAlgorithms(), pair) {
			return fmt.Errorf("unknown pair of algorithms %q", pair)
		}
	}
	return cfg.Model.Check()
}

// placed answers for one placement: g has its hosts numbered by rank.
func (s *simulator) placed(ctx context.Context, g *topology.Graph, pairs []string) (*Placed, error) {
	steps, gathers := make([]simulation, len(pairs)), make([]simulation, len(pairs))
	for i, pair := range pairs {
		gather, _ := parts(pair)
		steps[i] = prepare(g, pair, s.model, rowWork)
		gathers[i] = prepare(g, gather, s.model, rowWork)
	}
	estimates, err := s.run(ctx, slices.Concat(steps, gathers))
	if err != nil {
		return nil, err
	}
	p := &Placed{}
	for i, pair := range pairs {
		step, gather := estimates[i], estimates[len(pairs)+i]
		p.Rows = append(p.Rows, Row{
			Algo: pair, Step: Number{step.step * 1e3, step.source},
			Exposed:   Number{max(0, step.step-s.model.computeSeconds()) * 1e3, step.source},
			Allgather: Number{gather.share * 100, gather.source},
			Speedup:   Number{estimates[0].step / step.step, step.source},
			Tiers:     tiersOf(g, stepLoad(g, pair, s.model.Layers, s.model.shard(g.Hosts))),
			Simulated: Simulated{
				Hosts: steps[i].g.Hosts, Topology: steps[i].g.Name, Layers: steps[i].layers,
				Distance: steps[i].distance * 100, Excess: step.excess * 100,
			},
		})
	}
	if p.Curves, err = s.curves(ctx, g, pairs); err != nil {
		return nil, err
	}
	for i := 1; i < len(p.Curves); i++ {
		k, found, err := s.breakEven(ctx, g, &p.Curves[0], &p.Curves[i])
		if err != nil {
			return nil, err
		}
		if found {
			p.Rows[i].BreakEven = &k
		}
	}
	return p, nil
}

func (n *Network) facts(g *topology.Graph) NetworkFacts {
	s := n.Graph.Shape()
	return NetworkFacts{
		Topology: n.Graph.Name, Hosts: g.Hosts, HostsPerLeaf: s.HostsPerLeaf, Leaves: s.Leaves, Spines: s.Spines,
		Oversubscription: oversubscription(n.Graph), RateGbit: n.Rate / 1e9, UplinkGbit: n.Rate / 1e9 * s.Uplink,
		LatencyUS: float64(n.Latency.Nanoseconds()) / 1e3,
	}
}

func (m *Model) facts(ranks int) ModelFacts {
	return ModelFacts{
		Params: m.Params, Layers: m.Layers, DType: m.DType, LayerBytes: m.LayerBytes(), Shards: ranks,
		ComputeMS: m.Compute.Seconds() * 1e3,
	}
}
