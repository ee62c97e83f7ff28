package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// RoutingForms is the syntax of a routing.
const RoutingForms = "dmodk or hash[:SEED]"

// Hash returns the network with routes as of ECMP: a hash of both ends of a flow selects its way up, so flows may
// share a link while others are idle. Seeds give different hashes.
func (g *Graph) Hash(seed uint64) *Graph {
	hashed := *g
	hashed.hashed, hashed.seed = true, seed*0x9e3779b97f4a7c15
	return &hashed
}

// WithRouting returns the network with the routes that text names: see RoutingForms. The default seed of a hash is 1.
func (g *Graph) WithRouting(text string) (*Graph, error) {
	name, arg, colon := strings.Cut(text, ":")
	switch {
	case text == "dmodk":
		plain := *g
		plain.hashed, plain.seed = false, 0
		return &plain, nil
	case name != "hash":
		return nil, fmt.Errorf("unknown routing %q; valid are %s", text, RoutingForms)
	case !colon:
		return g.Hash(1), nil
	}
	seed, err := strconv.ParseUint(arg, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("routing %q: the seed is no whole number; want %s", text, RoutingForms)
	}
	return g.Hash(seed), nil
}
