package topology

import "fmt"

const maxOversubscription = 1024

// Oversubscribe returns the network with links between switches of 1/k of the rate that makes every level
// non-blocking. An error tells why k is not possible.
func (g *Graph) Oversubscribe(k float64) (*Graph, error) {
	switch {
	case !(k >= 1 && k <= maxOversubscription):
		return nil, fmt.Errorf("an oversubscription of %v: want 1 to %d", k, maxOversubscription)
	case k == 1:
		return g, nil
	case g.spines == 0:
		return nil, fmt.Errorf("%s cannot be oversubscribed: it has no links between switches", g.Name)
	}
	s := g.shape
	// The spines of a pod have as many cores above them as leaves below, so one multiple serves both levels.
	s.uplink = float64(s.hostsPerLeaf) / float64(s.spines) / k
	s.ratio = k
	return g.rebuild(g.at, s), nil
}

// Oversubscription returns the k of Oversubscribe, 1 if it was not called.
func (g *Graph) Oversubscription() float64 { return max(1, g.ratio) }
