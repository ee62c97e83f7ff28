package lab

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/background"
	"github.com/allcast/allcast/internal/topology"
)

func placement(t *testing.T, text string, hosts int) []int {
	t.Helper()
	list, err := topology.ParsePlacement(text, hosts, nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Rank r runs on host placement[r]. That host keeps its name, leaf and addresses, and switches keep their ports.
func TestPlanPlacement(t *testing.T) {
	for _, spec := range []string{"star:5", "fat-tree:8,4,2", "fat-tree3:16,4"} {
		inOrder := newPlan(t, spec)
		hosts := inOrder.Graph.Hosts
		for _, ranks := range [][]int{
			placement(t, "random:1", hosts), placement(t, "stride:3", hosts), {hosts - 1, 1, 3}, {2},
		} {
			p, err := NewPlan(Config{Topology: spec, Placement: ranks})
			if err != nil {
				t.Fatal(err)
			}
			for r, h := range ranks {
				n, want := p.Nodes[r], inOrder.Nodes[h]
				leaf := p.Nodes[n.Ports[0].Peer].Name
				if n.Name != want.Name || p.HostAddr(r) != inOrder.HostAddr(h) ||
					leaf != inOrder.Nodes[want.Ports[0].Peer].Name {
					t.Errorf("%s, %v: rank %d runs on %s at %s with address %v, want host %d", spec, ranks, r, n.Name, leaf,
						p.HostAddr(r), h)
				}
				if env := p.rankEnv(nil, r); !slices.Contains(env, "ALLCAST_RACK="+leaf) ||
					!slices.Contains(env, "MASTER_ADDR="+inOrder.HostAddr(ranks[0]).String()) {
					t.Errorf("%s, %v: rank %d has %v", spec, ranks, r, env)
				}
			}
			for _, s := range p.switches() {
				got, want := portNames(s), portNames(inOrder.Find(s.Name))
				if len(ranks) == hosts && !slices.Equal(got, want) {
					t.Errorf("%s, %v: %s has the ports %v, want %v", spec, ranks, s.Name, got, want)
				}
			}
			checkMulticast(t, p)
			checkUnicast(t, p)
		}
	}
}

func portNames(n *Node) (names []string) {
	for _, p := range n.Ports {
		names = append(names, p.Name)
	}
	return names
}

// Ranks contribute to the aggregator in the leaf of their host.
func TestPlanPlacedAggregators(t *testing.T) {
	p, err := NewPlan(Config{Topology: "fat-tree:4,2,1", Inc: true, Placement: []int{3, 0, 2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	want := "192.168.0.1:7900=1,3>192.168.0.3:7900;192.168.0.2:7900=0,2>192.168.0.3:7900;192.168.0.3:7900"
	if got := p.aggregatorTree(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Every spine has a group by default.
func TestPlanGroups(t *testing.T) {
	for spec, want := range map[string]int{
		"star:8": 1, "fat-tree:8,4,2": 2, "fat-tree:32,8,6": 6, "fat-tree:8,1,2": 1, "fat-tree3:16,4": 4,
		"fat-tree3:128,8": 16,
	} {
		p, err := NewPlan(Config{Topology: spec})
		if err != nil || len(p.Groups) != want {
			t.Errorf("%s has %d groups, want %d: %v", spec, len(p.Groups), want, err)
		}
	}
}

// Oversubscription divides the rates between switches.
func TestPlanRates(t *testing.T) {
	for spec, want := range map[string][3]float64{ // multiple at a ratio of 1, 2 and 4
		"fat-tree:32,4,2": {4, 2, 1}, "fat-tree:16,4,1": {4, 2, 1}, "fat-tree:16,4,2": {2, 1, 0.5},
		"fat-tree3:16,4": {1, 0.5, 0.25},
	} {
		for i, ratio := range []float64{1, 2, 4} {
			p, err := NewPlan(Config{Topology: spec, Rate: 100e6, Oversubscribe: ratio})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range p.Nodes {
				for _, port := range n.Ports {
					multiple := want[i]
					if n.Host || p.Graph.IsHost(port.Peer) {
						multiple = 1
					}
					if port.Multiple != multiple {
						t.Errorf("%s, %v: port %s of %s has %v times the rate of a host, want %v", spec, ratio, port.Name, n.Name,
							port.Multiple, multiple)
					}
				}
			}
		}
	}
}

// Background flows end at an address of their leaf, which all switches can reach, even if the leaf has no host.
func TestPlanBackground(t *testing.T) {
	spec := background.Spec{Flows: 20, Share: 0.25, Seed: 1}
	for _, cfg := range []Config{
		{Topology: "fat-tree:8,4,2"},
		{Topology: "fat-tree:5,4,1"},
		{Topology: "fat-tree3:16,4"},
		{Topology: "fat-tree:8,4,2", Placement: []int{0, 1}},
	} {
		cfg.Rate, cfg.Background = 100e6, spec
		p, err := NewPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Background) != spec.Flows {
			t.Errorf("%s: %d flows, want %d", cfg.Topology, len(p.Background), spec.Flows)
		}
		routes := tables(p, nil)
		for _, f := range p.Background {
			if f.From == f.To || !slices.Contains(p.ownAddrs(f.To), p.backgroundAddr(f.To)) {
				t.Errorf("%s: a flow from %s to %s, which has %v", cfg.Topology, f.From.Name, f.To.Name, p.ownAddrs(f.To))
			}
			if hops := walkTo(p, routes, f.From, f.To); hops != 2 && hops != 4 {
				t.Errorf("%s: the way from %s to %s has %d links", cfg.Topology, f.From.Name, f.To.Name, hops)
			}
		}
	}
}

// walkTo follows a background datagram over the last port of each route, and returns the number of links, or -1.
func walkTo(p *Plan, routes [][]Route, from, to *Node) int {
	at := from
	for hops := range 8 {
		if at == to {
			return hops
		}
		r, _ := lookup(routes[at.ID], p.backgroundAddr(to))
		if len(r.Ports) == 0 {
			return -1
		}
		at = p.Nodes[at.Ports[r.Ports[len(r.Ports)-1]].Peer]
	}
	return -1
}

func TestPlanNetworkErrors(t *testing.T) {
	flows := background.Spec{Flows: 1, Share: 0.5}
	for want, cfg := range map[string]Config{
		"oversubscription of 2 needs a rate": {Topology: "fat-tree:8,4,2", Oversubscribe: 2},
		"want 1 to":                          {Topology: "fat-tree:8,4,2", Oversubscribe: 0.5, Rate: 1e9},
		"no links between switches":          {Topology: "star:8", Oversubscribe: 2, Rate: 1e9},
		"traffic needs a rate":               {Topology: "fat-tree:8,4,2", Background: flows},
		"has only one":                       {Topology: "star:8", Background: flows, Rate: 1e9},
		"both on host 1":                     {Topology: "star:8", Placement: []int{1, 1}},
		"is on host 8":                       {Topology: "star:8", Placement: []int{8}},
	} {
		if _, err := NewPlan(cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}
