package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// Work of simulations, in events. A run of a step has about eventsPerPacket events for each packet that arrives at a
// host, on average over algorithms and placements.
const (
	eventsPerPacket = 5
	rowWork         = 6e6 // for one row of the table
	pointWork       = 1e6 // for one point of a curve, of which there are many
)

// chunksPerShard is the number of packets of a shard. More packets change the times by a few percent only; fewer would
// not fill the pipelines through switches.
const chunksPerShard = 8

// A step of more layers than deepLayers is extrapolated from two shallower ones: every further layer takes the same
// time, once the step has settled.
const (
	shallowLayers = 4
	deepLayers    = 8
)

// work returns the expected number of events of a step.
func work(hosts, layers int) float64 {
	return eventsPerPacket * float64(3*layers-1) * float64(hosts) * float64(hosts) * chunksPerShard
}

// simulation is what stands for a step of the real network and model.
type simulation struct {
	similar
	pair   string
	layers []int // one run each
	scaled bool  // whether hosts or layers are fewer than the real ones
}

// prepare selects the largest simulation that the work allows.
func prepare(g *topology.Graph, pair string, m *Model, allowed float64) simulation {
	s := simulation{pair: pair, layers: []int{m.Layers}}
	s.g, s.layer = g, float64(m.LayerBytes())
	if _, scatter := parts(pair); scatter == none {
		s.layers = []int{2} // as much work as one Allgather in finer packets
	}
	if work(g.Hosts, s.layers[0]) <= allowed {
		return s
	}
	if s.layers[0] > deepLayers {
		s.layers, s.scaled = []int{shallowLayers, deepLayers}, true
	}
	cost := 0.0
	for _, l := range s.layers {
		cost += work(1, l)
	}
	if limit := max(minModelHosts, int(math.Sqrt(allowed/cost))); g.Hosts > limit {
		s.similar, s.scaled = findSimilar(g, pair, s.layer, limit), true
	}
	return s
}

// minModelHosts is the number of hosts below which a ring is no longer typical.
const minModelHosts = 16

// key returns the same text for simulations with the same result. Similar networks with the same bounds stand for each
// other.
func (s *simulation) key(m *Model) string {
	b := boundsOf(s.g, s.pair, s.layer, 1)
	return fmt.Sprintf("%s %d %v %v %.3g", s.pair, s.g.Hosts, s.layers, m.Compute, b[:])
}

// estimate is the outcome of a simulation, for the real number of layers.
type estimate struct {
	step   float64 // seconds
	gather float64 // seconds of an Allgather alone
	share  float64 // of line rate, for an Allgather alone, 0 to 1
	excess float64 // share of bytes beyond those on the graph
	events int64
	source Source
}

// run runs the simulation.
func (s *simulation) run(n *Network, m *Model, seed uint64) (e estimate, err error) {
	e.source = FromSim
	if s.scaled {
		e.source = FromScaledSim
	}
	if _, scatter := parts(s.pair); scatter == none {
		err = s.runGather(&e, n, seed)
	} else {
		err = s.runSteps(&e, n, m, seed)
	}
	if err != nil {
		return e, fmt.Errorf("simulating %s on %s: %w", s.pair, s.g.Name, err)
	}
	return e, nil
}

// runSteps simulates training steps. If packets are so coarse that ranks do not wait for them, and repair or fall back
// instead, hosts carry more bytes than on the graph. The packets are then made finer.
func (s *simulation) runSteps(e *estimate, n *Network, m *Model, seed uint64) error {
	for chunks := int64(chunksPerShard); ; chunks *= 2 {
		if err := s.runLayers(e, n, m, chunks, seed); err != nil {
			return err
		}
		if e.excess <= maxExcess || chunks >= maxChunksPerShard {
			return nil
		}
	}
}

const (
	maxChunksPerShard = 8 * chunksPerShard
	maxExcess         = 0.1 // share of bytes that the graph does not have: headers, control messages and a few repairs
)

// runLayers simulates steps of all depths. Further layers add the time by which the steps differ.
func (s *simulation) runLayers(e *estimate, n *Network, m *Model, chunks int64, seed uint64) error {
	perLayer := 0.0
	e.excess = 0
	for i, layers := range s.layers {
		config := sim.FSDPConfig{
			Config: s.config(n, chunks, seed),
			Layers: layers, LayerBytes: s.shard() * int64(s.g.Hosts), Compute: m.Compute, Prefetch: prefetch,
		}
		r, err := sim.RunFSDP(config)
		if err != nil {
			return err
		}
		if err := failure(r.Verdict, r.Errors); err != nil {
			return err
		}
		step := r.StepUS / 1e6
		if i > 0 {
			perLayer = (step - e.step) / float64(layers-s.layers[i-1])
		}
		e.step = step
		e.events += r.Events
		e.excess = max(e.excess, s.excessOf(r))
	}
	e.step += perLayer * float64(m.Layers-s.layers[len(s.layers)-1])
	return nil
}

// excessOf returns by which share the busiest host sent or received more than on the graph.
func (s *simulation) excessOf(r *sim.FSDPResult) float64 {
	most := 0.0
	for _, t := range tiersOf(s.g, stepLoad(s.g, s.pair, r.Layers, s.shard())) {
		switch t.Name {
		case "host_up":
			most = max(most, float64(r.SentBytes)/t.Max-1)
		case "host_down":
			most = max(most, float64(r.ReceivedBytes)/t.Max-1)
		}
	}
	return most
}

// runGather simulates one Allgather. It is cheap, so its packets are finer.
func (s *simulation) runGather(e *estimate, n *Network, seed uint64) error {
	config := s.config(n, 4*chunksPerShard, seed)
	config.Op, config.Bytes, config.Subgroups = "allgather", s.shard(), model.Trees(s.g)
	config.Chains = s.g.Hosts // as in a step: one chain does not fill several trees with slow uplinks
	config.Segment = (s.shard()/4/int64(config.Chunk) + 1) * int64(config.Chunk)
	r, err := sim.Run(config)
	if err != nil {
		return err
	}
	if err := failure(r.Verdict, r.Errors); err != nil {
		return err
	}
	e.gather, e.events = r.TimeUS/1e6, r.Events
	e.share = float64(s.shard()) * float64(s.g.Hosts-1) * 8 / n.Rate / e.gather
	return nil
}

// failure returns an error if a simulation did not end with the right data.
func failure(v sim.Verdict, errors []sim.RankError) error {
	switch {
	case v.Verified:
		return nil
	case len(errors) > 0:
		return fmt.Errorf("rank %d failed in phase %s: %s", errors[0].Rank, errors[0].Phase, errors[0].Reason)
	}
	return fmt.Errorf("%d ranks have wrong data %s", v.Wrong, v.Violation)
}

// shard returns the size of a rank's part of a layer.
func (s *simulation) shard() int64 { return int64(math.Ceil(s.layer / float64(s.g.Hosts))) }

func (s *simulation) config(n *Network, chunks int64, seed uint64) sim.Config {
	chunk := min(max((s.shard()+chunks-1)/chunks, packetBytes), model.MaxChunk)
	config := sim.Config{
		Topology: s.g, Algo: s.pair, Seed: seed,
		Network:  sim.Network{Rate: n.Rate, Latency: n.Latency},
		Schedule: sim.Schedule{Chunk: int(chunk)},
	}
	return config.WithTags()
}

const (
	packetBytes = 4 << 10 // of real networks
	prefetch    = 1       // layers gathered ahead
)

// Network is the network to plan for.
type Network struct {
	Graph   *topology.Graph // with hosts in order
	Rate    float64         // bit/s of a host's link
	Latency time.Duration   // of one link, with its switch
}
