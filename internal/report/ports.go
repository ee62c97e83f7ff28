package report

import "github.com/allcast/allcast/internal/topology"

// Port holds the counters of one switch port.
type Port struct {
	Switch string // name from topology.Graph.NodeName
	Port   string // name of the node at the other end of the cable
	Rx, Tx uint64
}

// FromPorts converts the counters of switch ports into bytes by link direction. All cables must
// be present. For a cable between switches it uses the lower end's counters; the upper end's may
// be missing.
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
		port := up // the port whose counters are used
		if g.IsHost(g.Links[up].From) {
			port = g.Reverse(up)
		}
		if !seen[port] {
			return nil, inputError("no counters for the cable between %s and %s",
				g.NodeName(g.Links[up].From), g.NodeName(g.Links[up].To))
		}
	}
	return counted, nil
}

// isUp reports whether a direction leads away from the hosts.
func isUp(l topology.LinkID) bool { return l%2 == 0 }
