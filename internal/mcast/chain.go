package mcast

// chains is the Broadcast sequencer (Section IV-A, Appendix A). It splits the sending ranks into M
// chains. Within a chain, ranks multicast one after the other; the chains run in parallel. The split
// is contiguous in rank order for any M, and chain lengths differ by at most one. For M dividing P,
// the active group at step i is therefore {P_i, P_(R+i), ..., P_((M-1)R+i)} as in the paper.
type chains struct {
	members [][]int  // chain -> sender indices in order
	of      []int32  // sender index -> chain
	pos     []int32  // sender index -> position in its chain
	before  []uint64 // sender index -> number of chunks that its chain sends before it
	length  []uint64 // chain -> total number of chunks
}

func newChains(g *Geometry) chains {
	n := len(g.senders)
	c := chains{of: make([]int32, n), pos: make([]int32, n), before: make([]uint64, n)}
	groups := g.shape.Groups
	if groups == nil {
		m := min(g.shape.Chains, n)
		for k := range m {
			groups = append(groups, g.senders[k*n/m:(k+1)*n/m])
		}
	}
	for _, ranks := range groups {
		var chain []int
		var length uint64
		for _, r := range ranks {
			if i := g.index[r]; i >= 0 {
				c.of[i], c.pos[i], c.before[i] = int32(len(c.members)), int32(len(chain)), length
				chain = append(chain, int(i))
				length += uint64(g.chunks[i])
			}
		}
		if chain != nil {
			c.members, c.length = append(c.members, chain), append(c.length, length)
		}
	}
	return c
}

// neighbours returns the ranks before and after rank in its chain, or -1 for none.
func (g *Geometry) neighbours(rank int) (pred, succ int) {
	pred, succ = -1, -1
	i := g.index[rank]
	if i < 0 {
		return
	}
	chain, p := g.chains.members[g.chains.of[i]], int(g.chains.pos[i])
	if p > 0 {
		pred = g.senders[chain[p-1]]
	}
	if p+1 < len(chain) {
		succ = g.senders[chain[p+1]]
	}
	return
}

// position returns the place of the j-th chunk of chain k in the merged order of all chains:
// round-robin over the chains that still have a j-th chunk. Credit is granted in this order
// (credit.go).
func (c *chains) position(k int, j uint64) uint64 {
	var at uint64
	for i, n := range c.length {
		x := j
		if i < k {
			x++
		}
		at += min(n, x)
	}
	return at
}
