package plan

import "github.com/allcast/allcast/internal/topology"

// Tier is what the links of one level carry in one direction per step. The graph gives it exactly, without headers.
type Tier struct {
	Name   string  `json:"tier"` // as in topology.Graph.Tier
	Links  int     `json:"links"`
	Max    float64 `json:"max_bytes"` // of the busiest link
	Total  float64 `json:"total_bytes"`
	Source Source  `json:"source"`
}

// stepLoad counts what links carry in a step: parameters are gathered forward and backward, except for those of the
// last layer, which are still there when the backward pass begins. Gradients are scattered once.
func stepLoad(g *topology.Graph, pair string, layers int, shard int64) loads {
	a, r := parts(pair)
	block := float64(shard)
	return loadOf(g, a, block*float64(2*layers-1)).plus(loadOf(g, r, block*float64(layers)))
}

// tiersOf adds up loads by tier, from the hosts up.
func tiersOf(g *topology.Graph, l loads) []Tier {
	var tiers []Tier
	index := map[string]int{}
	for i, bytes := range l {
		name := g.Tier(topology.LinkID(i))
		at, seen := index[name]
		if !seen {
			at = len(tiers)
			index[name] = at
			tiers = append(tiers, Tier{Name: name, Source: FromGraph})
		}
		t := &tiers[at]
		t.Links++
		t.Max = max(t.Max, bytes)
		t.Total += bytes
	}
	return tiers
}
