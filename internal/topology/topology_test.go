package topology

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		spec                                  string
		hosts, switches, cables, racks, trees int
		uplink                                float64 // rate of the last link, as a multiple of the host links
	}{
		{"star:1", 1, 1, 1, 1, 1, 1},
		{"star:8", 8, 1, 8, 1, 1, 1},
		{"fat-tree:1,1,1", 1, 2, 2, 1, 1, 1},
		{"fat-tree:4,1,3", 4, 4, 7, 1, 1, 4. / 3},
		{"fat-tree:5,4,2", 5, 6, 13, 3, 2, 1}, // the fourth leaf is empty
		{"fat-tree:4,4,2", 4, 6, 12, 4, 2, 1},
		{"fat-tree:188,12,6", 188, 18, 260, 12, 6, 16. / 6},
		{"fat-tree3:1,2", 1, 2, 2, 1, 1, 1},
		{"fat-tree3:2,2", 2, 5, 6, 2, 1, 1},
		{"fat-tree3:2,4", 2, 3, 4, 1, 1, 1},
		{"fat-tree3:4,4", 4, 4, 8, 2, 2, 1},
		{"fat-tree3:5,4", 5, 3 + 4 + 4, 5 + 6 + 8, 3, 4, 1},
		{"fat-tree3:16,4", 16, 20, 48, 8, 4, 1},
		{"fat-tree3:1024,32", 1024, 64 + 64 + 256, 3 * 1024, 64, 256, 1},
	} {
		g := mustParse(t, c.spec)
		if g.Name != c.spec || g.Hosts != c.hosts || g.Switches() != c.switches || g.Nodes() != c.hosts+c.switches {
			t.Errorf("%s: got %s, %d hosts, %d switches, %d nodes", c.spec, g.Name, g.Hosts, g.Switches(), g.Nodes())
		}
		if len(g.Links) != 2*c.cables || cap(g.Links) != len(g.Links) {
			t.Errorf("%s: %d links (%d reserved), want %d", c.spec, len(g.Links), cap(g.Links), 2*c.cables)
		}
		if g.Racks() != c.racks || g.Trees() != c.trees {
			t.Errorf("%s: %d racks and %d trees, want %d and %d", c.spec, g.Racks(), g.Trees(), c.racks, c.trees)
		}
		if m := g.Links[len(g.Links)-1].Multiple; m != c.uplink {
			t.Errorf("%s: uplinks run at %v, want %v", c.spec, m, c.uplink)
		}
	}
}

// Every cable has two directions and joins adjacent levels. No cable occurs twice, and node names
// are unique.
func TestWiring(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawPlaced(t, 128)
		cables := map[[2]NodeID]bool{}
		for i, l := range g.Links {
			id := LinkID(i)
			back := g.Links[g.Reverse(id)]
			if g.Reverse(g.Reverse(id)) != id || g.Reverse(id) == id {
				t.Fatalf("%s: Reverse is not an involution at link %d", g.Name, i)
			}
			if back.From != l.To || back.To != l.From || back.Multiple != l.Multiple {
				t.Fatalf("%s: link %d is %v, its reverse %v", g.Name, i, l, back)
			}
			if d := level(t, g, l.To) - level(t, g, l.From); d != 1 && d != -1 {
				t.Fatalf("%s: a link joins %s and %s, which are not on adjacent levels",
					g.Name, g.NodeName(l.From), g.NodeName(l.To))
			}
			if key := [2]NodeID{l.From, l.To}; cables[key] {
				t.Fatalf("%s: a second link from %s to %s", g.Name, g.NodeName(l.From), g.NodeName(l.To))
			} else {
				cables[key] = true
			}
		}
		names := map[string]bool{}
		for n := range NodeID(g.Nodes()) {
			names[g.NodeName(n)] = true
			if g.IsHost(n) != (level(t, g, n) == 0) {
				t.Fatalf("%s: IsHost(%s) = %v", g.Name, g.NodeName(n), g.IsHost(n))
			}
		}
		if len(names) != g.Nodes() {
			t.Fatalf("%s: %d names for %d nodes", g.Name, len(names), g.Nodes())
		}
		for h := range g.Hosts {
			upLink, downLink := g.Links[g.HostUp(h)], g.Links[g.HostDown(h)]
			if upLink.From != NodeID(h) || downLink.To != NodeID(h) || g.Reverse(g.HostUp(h)) != g.HostDown(h) {
				t.Fatalf("%s: host %d has the links %v and %v", g.Name, h, upLink, downLink)
			}
			if want := g.NodeName(upLink.To); want != fmt.Sprintf("leaf%d", g.Rack(h)) {
				t.Fatalf("%s: host %d is in rack %d but on %s", g.Name, h, g.Rack(h), want)
			}
		}
	})
}

func TestNodeName(t *testing.T) {
	names := func(spec string) (all []string) {
		g := mustParse(t, spec)
		for n := range NodeID(g.Nodes()) {
			all = append(all, g.NodeName(n))
		}
		return all
	}
	for spec, want := range map[string][]string{
		"star:2":         {"host0", "host1", "leaf0"},
		"fat-tree:2,2,2": {"host0", "host1", "leaf0", "leaf1", "spine0", "spine1"},
		"fat-tree3:5,4": {
			"host0", "host1", "host2", "host3", "host4", "leaf0", "leaf1", "leaf2",
			"agg0.0", "agg0.1", "agg1.0", "agg1.1", "core0", "core1", "core2", "core3",
		},
	} {
		if got := names(spec); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", spec, got, want)
		}
	}
}

func TestByRack(t *testing.T) {
	g := mustParse(t, "fat-tree:10,3,2") // 4, 4, 2
	for _, c := range []struct {
		ranks []int
		want  [][]int
	}{
		{nil, nil},
		{[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}}},
		{[]int{9, 0, 8, 3, 1}, [][]int{{0, 3, 1}, {9, 8}}},
		{[]int{5}, [][]int{{5}}},
	} {
		if got := g.ByRack(c.ranks); !slices.EqualFunc(got, c.want, slices.Equal[[]int]) {
			t.Errorf("ByRack(%v) = %v, want %v", c.ranks, got, c.want)
		}
	}
}
