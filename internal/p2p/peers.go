package p2p

import (
	"slices"

	"github.com/allcast/allcast/internal/wire"
)

// contact lists the receives of a plan from one peer.
type contact struct {
	rank  int32
	recvs []int32 // indices of the receives from the peer, in order

	digest uint64 // of the call, as far as it concerns the two ranks
	bytes  int64  // bytes between the two ranks
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
	if p.Kind.Private() {
		p.comparePairs()
	}
}

// comparePairs gives every peer a digest of its own, so that two ranks which disagree about the bytes
// between them notice it. Both ranks compute the same digest if they agree.
func (p *Plan) comparePairs() {
	sent, received := make([]int64, len(p.peers)), make([]int64, len(p.peers))
	for i := range p.Sends {
		sent[p.contact(int(p.Sends[i].To))] += p.Sends[i].Len
	}
	for i := range p.Recvs {
		received[p.contact(int(p.Recvs[i].From))] += p.Recvs[i].Len
	}
	for i := range p.peers {
		c := &p.peers[i]
		up, down := sent[i], received[i] // from the lower rank to the higher, and back
		if int(c.rank) < p.Rank {
			up, down = down, up
		}
		c.digest, c.bytes = digest("", nil, int64(p.Digest), up, down), up+down
	}
}

// DigestWith returns the digest to exchange with a peer: the same value on both if they make the same
// call.
func (p *Plan) DigestWith(peer int) uint64 {
	if p.Kind.Private() {
		if i := p.contact(peer); i >= 0 {
			return p.peers[i].digest
		}
	}
	return p.Digest
}

// CallWith describes the call to a peer for error messages.
func (p *Plan) CallWith(peer int) wire.Call {
	c := p.Call()
	if p.Kind.Private() {
		if c.Bytes = 0; p.contact(peer) >= 0 {
			c.Bytes = uint64(p.peers[p.contact(peer)].bytes)
		}
	}
	return c
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
