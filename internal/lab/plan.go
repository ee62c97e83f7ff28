package lab

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/allcast/allcast/internal/topology"
)

// hostPort is the name of a host's only interface.
const hostPort = "eth0"

// Plan describes all parts of a lab before it exists.
type Plan struct {
	Config Config
	Graph  *topology.Graph // its host r is the host of rank r
	Nodes  []*Node         // by topology.NodeID; rank r runs on node r
	Groups []netip.AddrPort

	Aggregators []Aggregator // in the order of their switches; nil without in-network reduction
	Background  []Flow       // traffic of other jobs

	below [][]topology.NodeID // by node: the leaves below it; a leaf lists itself
}

// Node is a host or a switch.
type Node struct {
	ID    topology.NodeID
	Name  string // name for users: host3, leaf0
	Host  bool
	Ports []*Port // in the order of the kernel's multicast interfaces (VIFs)
}

// Port is one end of a cable.
type Port struct {
	Name     string // name of the interface: eth0 at a host, the peer's name at a switch
	Out      topology.LinkID
	Multiple float64 // rate, as a multiple of a host link's
	Up       bool    // whether it leads away from the hosts

	Addr, PeerAddr netip.Addr // the two of a /31 (RFC 3021)
	MAC, PeerMAC   net.HardwareAddr

	Peer     topology.NodeID
	PeerPort int
}

// defaultGroups returns the number of multicast groups: one per tree. With aggregators, the last tree is theirs alone
// if multicast reaches the rate of a host's link without it.
func defaultGroups(g *topology.Graph, aggregators bool) int {
	n, s := g.Trees(), g.Shape()
	if without := float64(s.Spines) * s.Uplink * float64(n-1) / float64(n); aggregators && without >= 1 {
		n--
	}
	return min(n, maxDefaultGroups)
}

// NewPlan computes the plan of a lab. An error means that the Config is invalid.
func NewPlan(cfg Config) (*Plan, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	g, err := cfg.graph()
	if err != nil {
		return nil, err
	}
	cfg.Topology = g.Name
	cfg.Groups = cmp.Or(cfg.Groups, defaultGroups(g, cfg.Inc))
	p := &Plan{Config: cfg, Graph: g, Nodes: make([]*Node, g.Nodes()), Groups: groups(cfg.Groups)}
	for n := range p.Nodes {
		id := topology.NodeID(n)
		p.Nodes[n] = &Node{ID: id, Name: g.NodeName(id), Host: g.IsHost(id)}
	}
	for _, c := range p.cables() {
		p.connect(c)
	}
	p.findBelow()
	p.findAggregators()
	p.findBackground()
	return p, nil
}

// cables lists the cables in the order in which switches number their ports. It does not depend on the ranks of hosts.
func (p *Plan) cables() []int {
	list := make([]int, len(p.Graph.Links)/2)
	for c := range list {
		list[c] = c
	}
	slices.SortStableFunc(list[:p.Graph.Hosts], func(a, b int) int { return p.Graph.Slot(a) - p.Graph.Slot(b) })
	return list
}

// connect adds the ports of a cable.
func (p *Plan) connect(c int) {
	up := topology.LinkID(2 * c)
	link := p.Graph.Links[up]
	lower, upper := p.Nodes[link.From], p.Nodes[link.To]
	lowerAddr, upperAddr := p.cableAddrs(c)
	lowerMAC, upperMAC := cableMACs(c)
	l := &Port{
		Name: upper.Name, Out: up, Multiple: link.Multiple, Up: true,
		Addr: lowerAddr, PeerAddr: upperAddr, MAC: lowerMAC, PeerMAC: upperMAC, Peer: upper.ID, PeerPort: len(upper.Ports),
	}
	if lower.Host {
		l.Name = hostPort
	}
	u := &Port{
		Name: lower.Name, Out: p.Graph.Reverse(up), Multiple: link.Multiple,
		Addr: upperAddr, PeerAddr: lowerAddr, MAC: upperMAC, PeerMAC: lowerMAC, Peer: lower.ID, PeerPort: len(lower.Ports),
	}
	lower.Ports, upper.Ports = append(lower.Ports, l), append(upper.Ports, u)
}

// Find returns a node by its name or by a host's number, or nil.
func (p *Plan) Find(name string) *Node {
	for _, n := range p.Nodes {
		if n.Name == name || n.Host && n.Name == "host"+name {
			return n
		}
	}
	return nil
}

// switches returns the nodes that are not hosts.
func (p *Plan) switches() []*Node { return p.Nodes[p.Graph.Hosts:] }

// leaf returns a leaf by its number.
func (p *Plan) leaf(i int) *Node { return p.Nodes[p.Graph.Hosts+i] }

// HostAddr returns the address of a rank's host.
func (p *Plan) HostAddr(rank int) netip.Addr { return p.Nodes[rank].Ports[0].Addr }

// Namespace returns the name of a node's namespace.
func (p *Plan) Namespace(n *Node) string { return p.Config.prefix() + n.Name }

func (c Config) prefix() string { return c.Name + "-" }
