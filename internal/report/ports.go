package report

import "github.com/allcast/allcast/internal/topology"

// Port is the counters of one port of a switch.
type Port struct {
	Switch string // as topology.Graph.NodeName calls it
	Port   string // the node at the other end of the cable, likewise
	Rx, Tx uint64
}

// FromPorts turns the counters of switch ports into bytes by link direction. All
// cables must be there. One between switches has counters at both ends; the
// lower end's are taken, and the other's need not be there.
func FromPorts(g *topology.Graph, ports []Port) ([]uint64, error) {
	out := make(map[[2]string]topology.LinkID, len(g.Links))
	for l, link := range g.Links {
		if !g.IsHost(link.From) {
			out[[2]string{g.NodeName(link.From), g.NodeName(link.To)}] = topology.LinkID(l)
		}
	}
	counted := make([]uint64, len(g.Links))
	seen := make([]bool, len(g.Links))
	for _, p := range ports {
		l, ok := out[[2]string{p.Switch, p.Port}]
		switch {
		case !ok:
			return nil, inputError("%s has no port of %s that leads to %s", g.Name, p.Switch, p.Port)
		case seen[l]:
			return nil, inputError("port %s of %s comes twice", p.Port, p.Switch)
		}
		seen[l] = true
		if isUp(l) || g.IsHost(g.Links[l].To) {
			counted[l], counted[g.Reverse(l)] = p.Tx, p.Rx
		}
	}
	for c := range len(g.Links) / 2 {
		up := topology.LinkID(2 * c)
		port := up // whose counters are taken
		if g.IsHost(g.Links[up].From) {
			port = g.Reverse(up)
		}
		if !seen[port] {
			return nil, inputError("no counters for the cable between %s and %s", g.NodeName(g.Links[up].From), g.NodeName(g.Links[up].To))
		}
	}
	return counted, nil
}

// isUp tells the direction away from the hosts from the one towards them.
func isUp(l topology.LinkID) bool { return l%2 == 0 }
