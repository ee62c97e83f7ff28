package plan

import (
	"github.com/allcast/allcast/internal/model"
	"github.com/allcast/allcast/internal/topology"
)

// Switches is what one communicator needs in the network. All of it is counted on the graph.
type Switches struct {
	Groups         int       `json:"multicast_groups"` // one per subgroup, each with a tree of its own
	SharedTree     []Entries `json:"shared_tree_entries"`
	SourceSpecific []Entries `json:"source_specific_entries"`
	Aggregators    int       `json:"aggregators"` // for inc only
	Source         Source    `json:"source"`
}

// Entries counts the entries of multicast tables at one level of switches.
type Entries struct {
	Level    string `json:"level"`    // leaf, spine or core
	Switches int    `json:"switches"` // that have entries
	Max      int    `json:"max"`      // at one switch
	Total    int    `json:"total"`
}

// switchesFor counts groups, table entries and aggregators. A tree that all sources share takes an entry at each of its
// switches, as on InfiniBand or with bidirectional PIM. Routes by source take one entry per source there, because the
// datagrams of every rank reach every switch of the tree.
func switchesFor(g *topology.Graph) Switches {
	groups := model.Trees(g)
	trees := make([]int, g.Nodes()) // by switch: trees through it
	for sub := range groups {
		t := g.Tree(sub)
		for n, ports := range t.Ports {
			if len(ports) > 0 && !g.IsHost(topology.NodeID(n)) {
				trees[n]++
			}
		}
	}
	return Switches{
		Groups: groups, SharedTree: entriesByLevel(g, trees, 1), SourceSpecific: entriesByLevel(g, trees, g.Hosts),
		Aggregators: g.TreeSwitches(), Source: FromGraph,
	}
}

var levelNames = map[topology.Level]string{
	topology.LeafLevel: "leaf", topology.SpineLevel: "spine", topology.CoreLevel: "core",
}

// entriesByLevel adds up entries, of which each tree through a switch takes that many.
func entriesByLevel(g *topology.Graph, trees []int, perTree int) []Entries {
	var all []Entries
	for n := topology.NodeID(g.Hosts); int(n) < g.Nodes(); n++ {
		if trees[n] == 0 {
			continue
		}
		name := levelNames[g.Level(n)]
		if len(all) == 0 || all[len(all)-1].Level != name { // nodes are in order of their levels
			all = append(all, Entries{Level: name})
		}
		e := &all[len(all)-1]
		e.Switches++
		e.Max = max(e.Max, trees[n]*perTree)
		e.Total += trees[n] * perTree
	}
	return all
}
