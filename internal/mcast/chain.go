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
	if g.shape.Groups != nil {
		for _, group := range g.shape.Groups {
			var m []int
			for _, r := range group {
				if i := g.index[r]; i >= 0 {
					m = append(m, int(i))
				}
			}
			if m != nil {
				c.members = append(c.members, m)
			}
		}
	} else {
		m := min(g.shape.Chains, n)
		for k := range m {
			var chain []int
			for i := k * n / m; i < (k+1)*n/m; i++ {
				chain = append(chain, i)
			}
			c.members = append(c.members, chain)
		}
	}
	c.length = make([]uint64, len(c.members))
	for k, chain := range c.members {
		for p, i := range chain {
			c.of[i], c.pos[i], c.before[i] = int32(k), int32(p), c.length[k]
			c.length[k] += uint64(g.chunks[i])
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

// ActiveGroup returns the ranks that multicast at a step of the schedule, in chain order.
func (g *Geometry) ActiveGroup(step int) []int {
	var ranks []int
	for _, chain := range g.chains.members {
		if step < len(chain) {
			ranks = append(ranks, g.senders[chain[step]])
		}
	}
	return ranks
}

// Steps returns the length of the longest chain.
func (g *Geometry) Steps() int {
	steps := 0
	for _, chain := range g.chains.members {
		steps = max(steps, len(chain))
	}
	return steps
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
