package model

import (
	"github.com/allcast/allcast/internal/p2p"
	"github.com/allcast/allcast/internal/topology"
)

// pointToPoint adds the traffic of a plan. It returns the bytes that a host link could carry in its time, or 0 if times
// are not wanted.
func (t *Traffic) pointToPoint(g *topology.Graph, kind p2p.Kind, load Workload) (busy float64, err error) {
	spec := p2p.Spec{Kind: kind, Size: g.Hosts, Bytes: load.Bytes}
	if kind == p2p.Allgather {
		spec.Counts = load.blockSizes(kind, g.Hosts)
	}
	var plans []*p2p.Plan
	for spec.Rank = range g.Hosts {
		plan, err := p2p.New(t.Algo, spec)
		if err != nil {
			return 0, err
		}
		for _, s := range plan.Sends {
			forEachLink(g, spec.Rank, int(s.To), func(l topology.LinkID) { t.PayloadByLink[l] += uint64(s.Len) })
		}
		if load.Rate > 0 {
			plans = append(plans, plan)
		}
	}
	return busiestLinks(g, plans), nil
}

// forEachLink calls f for each link of the way from host src to host dst.
func forEachLink(g *topology.Graph, src, dst int, f func(topology.LinkID)) {
	for l := g.Next(topology.NodeID(src), dst, src); l != topology.NoLink; l = g.Next(g.Links[l].To, dst, src) {
		f(l)
	}
}

// busiestLinks adds up, over all steps, the load of the busiest link in relation to its rate. Ranks thus wait for each
// other after every step. That is exact for a ring, where the same link is the busiest in all steps.
func busiestLinks(g *topology.Graph, plans []*p2p.Plan) (busy float64) {
	type send struct {
		rank int
		*p2p.Send
	}
	var steps [][]send
	for rank, numbers := range stepsOf(plans) {
		for i, step := range numbers {
			for len(steps) <= step {
				steps = append(steps, nil)
			}
			steps[step] = append(steps[step], send{rank, &plans[rank].Sends[i]})
		}
	}
	loads := make([]float64, len(g.Links))
	for _, sends := range steps {
		clear(loads)
		busiest := 0.0
		for _, s := range sends {
			forEachLink(g, s.rank, int(s.To), func(l topology.LinkID) {
				loads[l] += float64(s.Len) / g.Links[l].Multiple
				busiest = max(busiest, loads[l])
			})
		}
		busy += busiest
	}
	return busy
}

// stepsOf numbers the steps of the plans of all ranks: by rank, the step of each send. A rank makes one send per step,
// in the first step in which it has what the send needs. Sends of whole blocks that follow each other to the same rank
// are one send in parts. Segments are not: they are there to be forwarded one by one.
func stepsOf(plans []*p2p.Plan) [][]int {
	s := stepper{plans: plans, steps: make([][]int, len(plans)), ranks: make([]stepperRank, len(plans))}
	for rank, p := range plans {
		r := &s.ranks[rank]
		r.arrived = make([]int, len(p.Recvs))
		r.from = map[int32][]int32{}
		for i, recv := range p.Recvs {
			r.arrived[i] = notYet
			r.from[recv.From] = append(r.from[recv.From], int32(i))
		}
	}
	for rank := range plans {
		s.todo = append(s.todo, rank)
	}
	for len(s.todo) > 0 {
		last := len(s.todo) - 1
		rank := s.todo[last]
		s.todo = s.todo[:last]
		s.advance(rank)
	}
	return s.steps
}

type stepper struct {
	plans []*p2p.Plan
	steps [][]int
	ranks []stepperRank
	todo  []int // ranks that may be able to send
}

type stepperRank struct {
	arrived []int             // by receive: the step in which it, and all receives before it, have arrived
	from    map[int32][]int32 // by sender: receives that have not arrived
	prefix  int               // number of receives that have arrived without a gap
}

const notYet = -1

// advance makes the sends of a rank that can be made.
func (s *stepper) advance(rank int) {
	plan, r := s.plans[rank], &s.ranks[rank]
	for i := len(s.steps[rank]); i < len(plan.Sends); i++ {
		send := &plan.Sends[i]
		if int(send.After) > r.prefix {
			return
		}
		step := 0
		if i > 0 {
			step = s.steps[rank][i-1]
			if before := &plan.Sends[i-1]; plan.Segments > 0 || before.To != send.To || before.After != send.After {
				step++
			}
		}
		if send.After > 0 {
			step = max(step, r.arrived[send.After-1]+1)
		}
		s.steps[rank] = append(s.steps[rank], step)
		s.deliver(rank, int(send.To), step)
	}
}

// deliver lets a send arrive at the end of a step.
func (s *stepper) deliver(from, to, step int) {
	r := &s.ranks[to]
	waiting := r.from[int32(from)]
	r.arrived[waiting[0]] = step
	r.from[int32(from)] = waiting[1:]
	for before := r.prefix; r.prefix < len(r.arrived) && r.arrived[r.prefix] != notYet; r.prefix++ {
		if r.prefix > 0 {
			r.arrived[r.prefix] = max(r.arrived[r.prefix], r.arrived[r.prefix-1])
		}
		if r.prefix == before {
			s.todo = append(s.todo, to)
		}
	}
}
