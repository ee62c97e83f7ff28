package cli

import (
	"os"

	"github.com/allcast/allcast/internal/topology"
)

// NetworkFlags describe a network, and which ranks run on which hosts. Commands embed it. They mean the same in all
// commands.
type NetworkFlags struct {
	Topology      string  `required:"" placeholder:"SPEC"`
	Oversubscribe float64 `default:"1" placeholder:"K"`
	Placement     string  `default:"order" placeholder:"P"`
}

// NetworkHelp holds the help texts of NetworkFlags.
var NetworkHelp = map[string]string{
	"topology": "Network: star:8, fat-tree:HOSTS,LEAVES,SPINES (fat-tree:188,12,6 is the paper's testbed) or " +
		"fat-tree3:HOSTS,RADIX.",
	"oversubscribe": "Links between switches have 1/K of the rate that makes every level non-blocking (default 1).",
	"placement":     "Host of each rank: " + topology.PlacementForms + " (default order).",
}

// Graph returns the network with its hosts numbered by rank.
func (f *NetworkFlags) Graph() (*topology.Graph, error) {
	g, placement, err := f.Parse()
	if err != nil {
		return nil, err
	}
	if g, err = g.Place(placement); err != nil {
		return nil, Usagef("--placement: %v", err)
	}
	return g, nil
}

// Parse returns the network with its hosts in order, and the host of each rank.
func (f *NetworkFlags) Parse() (g *topology.Graph, placement []int, err error) {
	if g, err = topology.Parse(f.Topology); err != nil {
		return nil, nil, Usagef("--topology: %v", err)
	}
	if g, err = g.Oversubscribe(f.Oversubscribe); err != nil {
		return nil, nil, Usagef("--oversubscribe: %v", err)
	}
	if placement, err = topology.ParsePlacement(f.Placement, g.Hosts, os.ReadFile); err != nil {
		return nil, nil, Usagef("--placement: %v", err)
	}
	return g, placement, nil
}

// RoutingFlag selects the routes of a network. It is apart from NetworkFlags, because the kernel chooses them in a lab.
type RoutingFlag struct {
	Routing string `default:"dmodk" placeholder:"dmodk|hash[:SEED]"`
}

// RoutingHelp is the help text of RoutingFlag.
const RoutingHelp = "Routes of unicast packets. dmodk (default): the destination chooses the way up. " +
	"hash[:SEED]: a hash of both ends does, as in ECMP."

// Apply returns the network with these routes.
func (f *RoutingFlag) Apply(g *topology.Graph) (*topology.Graph, error) {
	routed, err := g.WithRouting(f.Routing)
	if err != nil {
		return nil, Usagef("--routing: %v", err)
	}
	return routed, nil
}

// Unless returns a value, or "" if it is the default: results name only what differs from a plain network.
func Unless(byDefault, value string) string {
	if value == byDefault {
		return ""
	}
	return value
}
