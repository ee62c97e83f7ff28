package topology

import (
	"testing"

	"pgregory.net/rapid"
)

// Every route is a shortest path without loops that never goes up after it went down.
func TestRoutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawPlaced(t, 128)
		out := neighbours(g)
		levels := make([]int, g.Nodes())
		for n := range levels {
			levels[n] = level(t, g, NodeID(n))
		}
		for src := range g.Hosts {
			dist := distances(g, out, NodeID(src))
			for dst := range g.Hosts {
				route := g.Route(src, dst)
				if len(route) != dist[dst] || len(route) != g.Hops(src, dst) {
					t.Fatalf("%s: the route from %d to %d has %d links, Hops returns %d, the shortest path has %d",
						g.Name, src, dst, len(route), g.Hops(src, dst), dist[dst])
				}
				at, descended := NodeID(src), false
				seen := map[NodeID]bool{at: true}
				for _, l := range route {
					link := g.Links[l]
					goesDown := levels[link.To] < levels[link.From]
					if link.From != at || seen[link.To] || descended && !goesDown {
						t.Fatalf("%s: route from %d to %d, %v: not an up-down path at %s", g.Name, src, dst, route, g.NodeName(at))
					}
					at, descended = link.To, goesDown
					seen[at] = true
				}
				if at != NodeID(dst) || g.Next(at, dst, src) != NoLink {
					t.Fatalf("%s: the route from %d to %d ends at %s", g.Name, src, dst, g.NodeName(at))
				}
			}
		}
	})
}

// busiest returns the number of flows on the busiest link if every host sends to the host s positions further.
func busiest(g *Graph, s int) int {
	flows := make([]int, len(g.Links))
	most := 0
	for src := range g.Hosts {
		for _, l := range g.Route(src, (src+s)%g.Hosts) {
			flows[l]++
			most = max(most, flows[l])
		}
	}
	return most
}

// Flows between ring neighbours, in either direction, never share a link.
func TestRingIsFreeOfConflicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t, 128)
		for _, s := range []int{1, g.Hosts - 1} {
			if n := busiest(g, s); n > 1 {
				t.Fatalf("%s: a shift by %d puts %d flows on one link", g.Name, s, n)
			}
		}
	})
}

// On full networks with one uplink per host, no two flows of a shift share a link. With fewer, faster
// uplinks, flows spread as evenly as possible. Destinations wrap around at the last host, so this holds
// for all shifts only if the number of hosts is a multiple of the number of spines.
func TestShiftsAreFreeOfConflicts(t *testing.T) {
	for spec, limit := range map[string]int{
		"star:9":            1,
		"fat-tree:64,8,8":   1,
		"fat-tree:12,4,4":   1,
		"fat-tree:64,4,4":   4,
		"fat-tree:96,6,6":   3, // 16 hosts on 6 spines
		"fat-tree3:16,4":    1,
		"fat-tree3:8,4":     1,
		"fat-tree3:128,8":   1,
		"fat-tree3:64,8":    1,
		"fat-tree3:1024,32": 1,
	} {
		g := mustParse(t, spec)
		for s := 1; s < g.Hosts; s += 1 + g.Hosts/200 {
			if n := busiest(g, s); n > limit {
				t.Errorf("%s: a shift by %d puts %d flows on one link, want at most %d", spec, s, n, limit)
			}
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	g := mustParse(t, "fat-tree3:1024,32")
	if n := testing.AllocsPerRun(100, func() { walk(g, 3, 1000) }); n != 0 {
		t.Errorf("a walk allocates %v times, want 0", n)
	}
}

// walk follows Next from host to host, as the simulator does.
func walk(g *Graph, src, dst int) (hops int) {
	for at := NodeID(src); ; hops++ {
		l := g.Next(at, dst, src)
		if l == NoLink {
			return hops
		}
		at = g.Links[l].To
	}
}

func BenchmarkNext(b *testing.B) {
	for _, spec := range []string{"star:64", "fat-tree:188,12,6", "fat-tree3:1024,32", "fat-tree3:11664,36"} {
		b.Run(spec, func(b *testing.B) {
			g := mustParse(b, spec)
			b.ReportAllocs()
			hops, src, dst := 0, 0, 1
			for b.Loop() {
				hops += walk(g, src, dst)
				if src++; src == g.Hosts {
					src = 0
				}
				if dst += 7; dst >= g.Hosts {
					dst -= g.Hosts
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(hops), "ns/hop")
		})
	}
}
