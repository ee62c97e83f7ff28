package topology

// Groups are the sets of hosts that share the links up from one switch, or from the switches of one pod. What enters or
// leaves a group crosses these links.
type Groups struct {
	Of       []int   // group of each host
	Count    int     // number of groups
	Multiple float64 // rate of a group's links together, as a multiple of a host link's
}

// Groups returns the groups of hosts from the bottom up: single hosts, racks, and pods. Levels with one group are left
// out, because nothing enters or leaves it.
func (g *Graph) Groups() []Groups {
	all := []Groups{
		g.group(1, func(h int) int { return h }),
		g.group(float64(g.spines)*g.uplink, g.Rack),
		g.group(float64(g.spines*g.cores)*g.uplink, func(h int) int { return g.Rack(h) / g.leavesPerPod }),
	}
	for len(all) > 0 && all[len(all)-1].Count == 1 {
		all = all[:len(all)-1]
	}
	return all
}

// group numbers the groups in the order of their first hosts.
func (g *Graph) group(multiple float64, of func(host int) int) Groups {
	s := Groups{Of: make([]int, g.Hosts), Multiple: multiple}
	numbers := map[int]int{}
	for h := range g.Hosts {
		n, known := numbers[of(h)]
		if !known {
			n = len(numbers)
			numbers[of(h)] = n
		}
		s.Of[h] = n
	}
	s.Count = len(numbers)
	return s
}
