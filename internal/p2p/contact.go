package p2p

import "slices"

// contact is what a plan has to do with one peer.
type contact struct {
	rank  int32
	recvs []int32 // the receives from it, in order
}

// contacts finds out whom a plan deals with: those that it receives from first, since
// they wait for our word. A plan may be run many times, also at once, so it is done when
// the plan is made.
func (p *Plan) contacts() {
	n := make(map[int32]int, 8)
	meet := func(rank int32) int {
		i, met := n[rank]
		if !met {
			i = len(p.peers)
			n[rank] = i
			p.peers = append(p.peers, contact{rank: rank})
		}
		return i
	}
	for i := range p.Recvs {
		c := &p.peers[meet(p.Recvs[i].From)]
		c.recvs = append(c.recvs, int32(i))
	}
	p.senders = len(p.peers)
	for i := range p.Sends {
		meet(p.Sends[i].To)
	}
	p.byRank = make([]int32, len(p.peers))
	for i := range p.byRank {
		p.byRank[i] = int32(i)
	}
	slices.SortFunc(p.byRank, func(a, b int32) int { return int(p.peers[a].rank - p.peers[b].rank) })
}

// contact is the place of a rank among the peers, -1 if it is none.
func (p *Plan) contact(rank int) int {
	at, found := slices.BinarySearchFunc(p.byRank, rank, func(i int32, rank int) int { return int(p.peers[i].rank) - rank })
	if !found {
		return -1
	}
	return int(p.byRank[at])
}
