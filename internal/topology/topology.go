// Package topology holds the networks that Allcast runs on as graphs: hosts,
// switches and links, the routes of unicast packets, the trees of multicast
// datagrams, and the count of links that a collective crosses.
//
// It is pure: no I/O and no clock, and everything random in it follows from a seed, so the same arguments always give
// the same graph. The simulator, the lab and the models all use it, so that their counts can be compared.
//
// Every network here is a fat-tree of up to three levels, so one shape covers
// them all and routes are arithmetic on it: a table of next hops would need
// N^2 entries, and the simulator asks for one at every hop of every packet.
package topology

// NodeID names a host or a switch: hosts are 0..Hosts-1, switches follow.
type NodeID int32

// LinkID names one direction of a cable, as an index into Graph.Links.
type LinkID int32

// NoLink is what Next returns at the destination.
const NoLink LinkID = -1

// Link is one direction of a cable.
type Link struct {
	From, To NodeID
	Multiple float64 // rate as a multiple of a host link's
}

// Graph is a network. It is immutable once parsed, hence safe to share.
type Graph struct {
	Name  string // canonical spec, "fat-tree:188,12,6"
	Hosts int
	Links []Link // the two directions of cable c are links 2c (up) and 2c+1 (down)

	shape
	nodes int

	at     []int  // position of each host, counted leaf by leaf
	racks  []int  // leaves that hold hosts, in ascending order
	used   []int  // pods that hold hosts, in ascending order
	hashed bool   // whether a hash of both ends selects a packet's way up
	seed   uint64 // seed of that hash

	// Where each kind of node and of cable starts. Hosts and the hosts' cables
	// start at 0; cable h is host h's.
	leaf0, spine0, core0    int
	spineCable0, coreCable0 int
}

// Nodes returns the number of hosts and switches.
func (g *Graph) Nodes() int { return g.nodes }

// Switches returns the number of switches, including those that no route needs.
func (g *Graph) Switches() int { return g.nodes - g.Hosts }

// IsHost tells hosts from switches.
func (g *Graph) IsHost(n NodeID) bool { return int(n) < g.Hosts }

// Reverse returns the other direction of the same cable.
func (g *Graph) Reverse(l LinkID) LinkID { return l ^ 1 }

// HostUp returns the link from host h to its leaf.
func (g *Graph) HostUp(h int) LinkID { return up(h) }

// HostDown returns the link from its leaf to host h.
func (g *Graph) HostDown(h int) LinkID { return down(h) }

// up and down return the directions of a cable; up leads away from the hosts.
func up(cable int) LinkID   { return LinkID(2 * cable) }
func down(cable int) LinkID { return LinkID(2*cable + 1) }
