package topology

// Tier names a direction of the links between two levels: host_up, host_down, leaf_up (from leaves to spines),
// leaf_down, spine_up (from spines to cores) and spine_down.
func (g *Graph) Tier(l LinkID) string {
	link := g.Links[l]
	direction := 0 // the lower end names a cable
	lower := link.From
	if g.Level(link.To) < g.Level(link.From) {
		direction, lower = 1, link.To
	}
	return tierNames[g.Level(lower)][direction]
}

var tierNames = [...][2]string{
	HostLevel:  {"host_up", "host_down"},
	LeafLevel:  {"leaf_up", "leaf_down"},
	SpineLevel: {"spine_up", "spine_down"},
}

// TierNames returns the tiers that a map has, from the hosts up.
func TierNames[V any](byTier map[string]V) (names []string) {
	for _, directions := range tierNames {
		for _, name := range directions {
			if _, ok := byTier[name]; ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// ByTier adds up values of links by tier. The result has all tiers of the network.
func (g *Graph) ByTier(byLink []uint64) map[string]uint64 {
	sums := map[string]uint64{}
	for l, n := range byLink {
		sums[g.Tier(LinkID(l))] += n
	}
	return sums
}
