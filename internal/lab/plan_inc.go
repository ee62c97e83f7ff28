package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/topology"
)

// Aggregators have an address of their own in their switch, whichever port their datagrams use. The first
// half of it tells the loss filter which datagrams are theirs.
const (
	aggregatorNet  = 192<<24 | 168<<16
	aggregatorPort = 7900 // default of "allcast aggregator"
)

// Aggregator is an aggregator of in-network reduction. It runs inside a switch.
type Aggregator struct {
	Switch *Node
	Addr   netip.AddrPort
	Parent int   // index in Plan.Aggregators; -1 at the top
	Ranks  []int // ranks that it serves
}

// findAggregators places an aggregator in each switch of a multicast tree. It is the last tree: multicast with
// fewer groups than trees then shares no link between switches with it.
func (p *Plan) findAggregators() {
	if !p.Config.Inc {
		return
	}
	tree := p.Graph.Tree(p.Graph.Trees() - 1)
	index := make(map[topology.NodeID]int)
	for _, n := range p.switches() {
		if n.ID != tree.Top && len(tree.Ports[n.ID]) == 0 {
			continue
		}
		index[n.ID] = len(p.Aggregators)
		p.Aggregators = append(p.Aggregators, Aggregator{Switch: n, Addr: p.aggregatorAddr(n), Parent: -1})
	}
	ports := p.portsByLink()
	for i := range p.Aggregators {
		a := &p.Aggregators[i]
		for _, l := range tree.Ports[a.Switch.ID] {
			if port := a.Switch.Ports[ports[l]]; port.Up {
				a.Parent = index[port.Peer]
			}
		}
	}
	for h := range p.Graph.Hosts {
		a := &p.Aggregators[index[p.Nodes[h].Ports[0].Peer]]
		a.Ranks = append(a.Ranks, h) // hosts are numbered by rank
	}
}

func (p *Plan) aggregatorAddr(n *Node) netip.AddrPort {
	return netip.AddrPortFrom(address(aggregatorNet+uint32(int(n.ID)-p.Graph.Hosts)+1), aggregatorPort)
}

// aggregatorTree returns the value of ALLCAST_AGGREGATORS.
func (p *Plan) aggregatorTree() string {
	var list []string
	for _, a := range p.Aggregators {
		text := a.Addr.String()
		if len(a.Ranks) > 0 {
			text += "=" + rankRanges(a.Ranks)
		}
		if a.Parent >= 0 {
			text += ">" + p.Aggregators[a.Parent].Addr.String()
		}
		list = append(list, text)
	}
	return strings.Join(list, ";")
}

// rankRanges formats ranks in increasing order, such as 0-3,8.
func rankRanges(ranks []int) string {
	var parts []string
	for len(ranks) > 0 {
		n := 1
		for n < len(ranks) && ranks[n] == ranks[0]+n {
			n++
		}
		part := strconv.Itoa(ranks[0])
		if n > 1 {
			part += fmt.Sprintf("-%d", ranks[n-1])
		}
		parts = append(parts, part)
		ranks = ranks[n:]
	}
	return strings.Join(parts, ",")
}

// aggregator finds the aggregator of a switch by the switch's name.
func (p *Plan) aggregator(name string) (int, error) {
	i := slices.IndexFunc(p.Aggregators, func(a Aggregator) bool { return a.Switch.Name == name })
	if i < 0 {
		var names []string
		for _, a := range p.Aggregators {
			names = append(names, a.Switch.Name)
		}
		return 0, configError("there is no aggregator in %q: there are aggregators in %v", name, names)
	}
	return i, nil
}
