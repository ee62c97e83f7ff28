package p2p

import "slices"

// contact lists the receives of a plan from one peer.
type contact struct {
	rank  int32
	recvs []int32 // indices of the receives from the peer, in order
}

// contacts finds the peers of a plan. The peers that the plan receives from come first, because they
// wait for a greeting. It runs when the plan is made, because a plan may run many times and
// concurrently.
func (p *Plan) contacts() {
	n := make(map[int32]int, 8)
	contactOf := func(rank int32) int {
		i, known := n[rank]
		if !known {
			i = len(p.peers)
			n[rank] = i
			p.peers = append(p.peers, contact{rank: rank})
		}
		return i
	}
	for i := range p.Recvs {
		c := &p.peers[contactOf(p.Recvs[i].From)]
		c.recvs = append(c.recvs, int32(i))
	}
	p.senders = len(p.peers)
	for i := range p.Sends {
		contactOf(p.Sends[i].To)
	}
	p.byRank = make([]int32, len(p.peers))
	for i := range p.byRank {
		p.byRank[i] = int32(i)
	}
	slices.SortFunc(p.byRank, func(a, b int32) int { return int(p.peers[a].rank - p.peers[b].rank) })
}

// contact returns the index of a rank among the peers, or -1.
func (p *Plan) contact(rank int) int {
	at, found := slices.BinarySearchFunc(p.byRank, rank, func(i int32, rank int) int {
		return int(p.peers[i].rank) - rank
	})
	if !found {
		return -1
	}
	return int(p.byRank[at])
}
