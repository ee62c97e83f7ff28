package lab

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/topology"
)

var specs = []string{
	"star:1", "star:2", "star:32", "fat-tree:1,1,1", "fat-tree:5,4,3", "fat-tree:16,4,2",
	"fat-tree:188,12,6", "fat-tree3:16,4", "fat-tree3:30,8",
}

func newPlan(t *testing.T, spec string) *Plan {
	t.Helper()
	p, err := NewPlan(Config{Topology: spec, Groups: 5})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlanPorts(t *testing.T) {
	for _, spec := range specs {
		p := newPlan(t, spec)
		addrs, macs := map[netip.Addr]bool{}, map[string]bool{}
		for n := range p.Nodes {
			names := map[string]bool{}
			for i, port := range p.Nodes[n].Ports {
				peer := p.Nodes[port.Peer].Ports[port.PeerPort]
				if peer.Peer != topology.NodeID(n) || peer.PeerPort != i || peer.Addr != port.PeerAddr ||
					peer.PeerAddr != port.Addr {
					t.Errorf("%s: the two ends of a cable differ: %+v, %+v", spec, port, peer)
				}
				a, b := netip.PrefixFrom(port.Addr, 31).Masked(), netip.PrefixFrom(port.PeerAddr, 31).Masked()
				if a != b || port.Addr == port.PeerAddr {
					t.Errorf("%s: %v and %v are not the two addresses of a /31", spec, port.Addr, port.PeerAddr)
				}
				if addrs[port.Addr] || macs[port.MAC.String()] || names[port.Name] || len(port.Name) > 15 {
					t.Errorf("%s: duplicate address, MAC or name, or name too long: %+v", spec, port)
				}
				addrs[port.Addr], macs[port.MAC.String()], names[port.Name] = true, true, true
			}
		}
		for h := range p.Graph.Hosts {
			if leaf := p.Nodes[h].Ports[0].Peer; !p.leafNet(leaf).Contains(p.HostAddr(h)) {
				t.Errorf("%s: host %d is not in its leaf's prefix", spec, h)
			}
		}
	}
}

// A datagram reaches every other host exactly once and crosses no cable twice.
func TestPlanMulticast(t *testing.T) {
	for _, spec := range specs {
		checkMulticast(t, newPlan(t, spec))
	}
}

func checkMulticast(t *testing.T, p *Plan) {
	t.Helper()
	spec := p.Graph.Name
	entries := p.Entries()
	type key struct{ source, group netip.Addr }
	tables := make([]map[key]*Entry, len(p.Nodes))
	for n := range entries {
		tables[n] = map[key]*Entry{}
		for i := range entries[n] {
			e := &entries[n][i]
			if tables[n][key{e.Source, e.Group}] != nil {
				t.Fatalf("%s: %s has two entries for (%v,%v)", spec, p.Nodes[n].Name, e.Source, e.Group)
			}
			tables[n][key{e.Source, e.Group}] = e
		}
	}
	for i, group := range p.Groups {
		links := p.Graph.Tree(i).Links(0)
		for h := range p.Graph.Hosts {
			got, crossed := make([]int, p.Graph.Hosts), 0
			var forward func(out topology.LinkID)
			forward = func(out topology.LinkID) {
				if crossed++; crossed > links {
					return
				}
				at := p.Graph.Links[out].To
				if p.Graph.IsHost(at) {
					got[at]++
					return
				}
				e := tables[at][key{p.HostAddr(h), group.Addr()}]
				if e == nil || p.Nodes[at].Ports[e.In].Out != p.Graph.Reverse(out) {
					return // no entry, or received on the wrong port
				}
				for _, o := range e.Out {
					forward(p.Nodes[at].Ports[o].Out)
				}
			}
			if p.Graph.Hosts > 1 {
				forward(p.Nodes[h].Ports[0].Out)
			}
			for to, n := range got {
				if want := min(1, max(to-h, h-to)); n != want {
					t.Errorf("%s, group %d: host %d gets %d copies from host %d, want %d", spec, i, to, n, h, want)
				}
			}
			if crossed != links {
				t.Errorf("%s, group %d: host %d's datagram crosses %d links, want %d", spec, i, h, crossed, links)
			}
		}
	}
}

// lookup selects a route as the kernel does: by the longest prefix.
func lookup(routes []Route, dst netip.Addr) (best Route, found bool) {
	for _, r := range routes {
		if (!r.Dst.IsValid() || r.Dst.Contains(dst)) && (!found || r.Dst.Bits() > best.Dst.Bits()) {
			best, found = r, true
		}
	}
	return best, found
}

// walk returns the length of the longest path from a node to a host, or -1 if some path ends elsewhere.
func walk(p *Plan, tables [][]Route, at topology.NodeID, dst, hops int) int {
	if p.Graph.IsHost(at) {
		if int(at) == dst {
			return hops
		}
		return -1
	}
	if hops > 8 {
		return -1
	}
	if p.Nodes[dst].Ports[0].Peer == at {
		return hops + 1
	}
	r, _ := lookup(tables[at], p.HostAddr(dst))
	longest := -1
	for _, i := range r.Ports {
		n := walk(p, tables, p.Nodes[at].Ports[i].Peer, dst, hops+1)
		if n < 0 {
			return -1
		}
		longest = max(longest, n)
	}
	return longest
}

func tables(p *Plan, cut func(int) bool) [][]Route {
	list := make([][]Route, len(p.Nodes))
	for n := p.Graph.Hosts; n < len(p.Nodes); n++ {
		list[n] = p.Routes(p.Nodes[n], cut)
	}
	return list
}

func TestPlanUnicast(t *testing.T) {
	for _, spec := range specs {
		checkUnicast(t, newPlan(t, spec))
	}
}

func checkUnicast(t *testing.T, p *Plan) {
	t.Helper()
	routes := tables(p, nil)
	for src := range p.Graph.Hosts {
		for dst := range p.Graph.Hosts {
			if src == dst {
				continue
			}
			if got, want := walk(p, routes, p.Nodes[src].Ports[0].Peer, dst, 1), p.Graph.Hops(src, dst); got != want {
				t.Fatalf("%s: from host %d to %d: longest path has %d links, want %d", p.Graph.Name, src, dst, got, want)
			}
		}
	}
}

// After one cable is cut, all hosts still reach each other over another path.
func TestPlanCut(t *testing.T) {
	p := newPlan(t, "fat-tree:8,4,2")
	for c := p.Graph.Hosts; c < len(p.Graph.Links)/2; c++ {
		routes := tables(p, func(x int) bool { return x == c })
		for src := range p.Graph.Hosts {
			for dst := range p.Graph.Hosts {
				if n := walk(p, routes, p.Nodes[src].Ports[0].Peer, dst, 1); src != dst && n != p.Graph.Hops(src, dst) {
					t.Errorf("cable %d cut: from host %d to %d: longest path has %d links", c, src, dst, n)
				}
			}
		}
	}
	// With all cables to leaf 0 cut, the other switches have an unreachable route to it.
	leaf := topology.NodeID(p.Graph.Hosts)
	routes := tables(p, func(x int) bool { return x >= p.Graph.Hosts && p.Graph.Links[2*x].From == leaf })
	for n := p.Graph.Hosts + 1; n < len(p.Nodes); n++ {
		if r, ok := lookup(routes[n], p.HostAddr(0)); !ok || len(r.Ports) != 0 {
			t.Errorf("%s: want an unreachable route to host 0, got %+v", p.Nodes[n].Name, r)
		}
	}
}

// The tree of a communicator's group leads from each member to all others, and to no other host.
func TestPlanMembers(t *testing.T) {
	for _, spec := range []string{"star:5", "fat-tree:8,4,2", "fat-tree:16,8,4"} {
		p, err := NewPlan(Config{Topology: spec})
		if err != nil {
			t.Fatal(err)
		}
		all := map[topology.NodeID]bool{}
		for h := range p.Graph.Hosts {
			all[topology.NodeID(h)] = true
		}
		for k, members := range []map[topology.NodeID]bool{
			{0: true, 1: true}, {0: true, 3: true, 4: true}, {2: true}, all, {},
		} {
			group := address(239<<24 | 196<<16 | uint32(k))
			entries := p.MemberEntries(group, members)
			for source := range members {
				got := map[topology.NodeID]bool{}
				port := p.Nodes[source].Ports[0]
				p.deliver(entries, port.Peer, port.PeerPort, p.HostAddr(int(source)), got)
				want := maps.Clone(members)
				delete(want, source)
				if !maps.Equal(got, want) {
					t.Errorf("%s: from host %d the members %v get %v", spec, source, members, got)
				}
			}
		}
	}
}

// deliver follows a datagram that arrives at a port, and notes the hosts that it reaches.
func (p *Plan) deliver(entries [][]Entry, at topology.NodeID, in int, source netip.Addr, got map[topology.NodeID]bool) {
	if p.Graph.IsHost(at) {
		got[at] = true
		return
	}
	for _, e := range entries[at] {
		if e.Source == source && e.In == in {
			for _, out := range e.Out {
				port := p.Nodes[at].Ports[out]
				p.deliver(entries, port.Peer, port.PeerPort, source, got)
			}
		}
	}
}

func TestPlanErrors(t *testing.T) {
	for want, cfg := range map[string]Config{
		"unknown kind":   {Topology: "ring:3"},
		"at most 32":     {Topology: "star:33"},
		"leaf0 would":    {Topology: "fat-tree:60,2,3"},
		"spine0 would":   {Topology: "fat-tree:40,40,1"},
		"at most 1024":   {Topology: "fat-tree:1024,64,2"},
		"MTU":            {Topology: "star:2", MTU: 100},
		"groups":         {Topology: "star:2", Groups: 65},
		"queue":          {Topology: "star:2", Queue: 1000},
		"name":           {Topology: "star:2", Name: "../x"},
		"a loss of 100%": {Topology: "star:2", Loss: 1},
	} {
		if _, err := NewPlan(cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
}

// The tree of aggregators mirrors the network.
func TestPlanAggregators(t *testing.T) {
	for spec, want := range map[string]string{
		"star:1":         "192.168.0.1:7900=0",
		"star:8":         "192.168.0.1:7900=0-7",
		"fat-tree:4,1,2": "192.168.0.1:7900=0-3",
		"fat-tree:4,2,2": "192.168.0.1:7900=0-1>192.168.0.4:7900;192.168.0.2:7900=2-3>192.168.0.4:7900;192.168.0.4:7900",
		// The fourth leaf has no hosts.
		"fat-tree:5,4,1": "192.168.0.1:7900=0-1>192.168.0.5:7900;192.168.0.2:7900=2-3>192.168.0.5:7900;" +
			"192.168.0.3:7900=4>192.168.0.5:7900;192.168.0.5:7900",
		"fat-tree3:6,4": "192.168.0.1:7900=0-1>192.168.0.5:7900;192.168.0.2:7900=2-3>192.168.0.5:7900;" +
			"192.168.0.3:7900=4-5>192.168.0.7:7900;" +
			"192.168.0.5:7900>192.168.0.11:7900;192.168.0.7:7900>192.168.0.11:7900;192.168.0.11:7900",
	} {
		p, err := NewPlan(Config{Topology: spec, Inc: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.aggregatorTree(); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
		if p, err := NewPlan(Config{Topology: spec}); err != nil || p.Aggregators != nil {
			t.Errorf("%s without Inc: %v, %v", spec, p.Aggregators, err)
		}
	}
	if got := rankRanges([]int{0, 1, 2, 5, 7, 8}); got != "0-2,5,7-8" {
		t.Errorf("ranges: %s", got)
	}
}

func TestDefaultGroups(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want int
	}{
		{Config{Topology: "star:8", Inc: true}, 1},
		{Config{Topology: "fat-tree:16,4,1", Inc: true}, 1},
		{Config{Topology: "fat-tree:16,4,2"}, 2},
		{Config{Topology: "fat-tree:16,4,2", Inc: true}, 1}, // an uplink carries the rate of two hosts
		{Config{Topology: "fat-tree:16,4,4", Inc: true}, 3},
		{Config{Topology: "fat-tree:16,4,4", Inc: true, Rate: 1e8, Oversubscribe: 4}, 4},
		{Config{Topology: "fat-tree:16,4,4", Inc: true, Groups: 4}, 4},
	} {
		p, err := NewPlan(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(p.Groups); got != c.want {
			t.Errorf("%+v: %d groups, want %d", c.cfg, got, c.want)
		}
	}
}
