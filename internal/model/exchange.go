package model

import (
	"math"
	"math/bits"
)

// gather is the cost of a Gather, and of a Scatter, which is the same backwards: n bytes per rank go through
// the root's link in either algorithm. The busiest rank injects fewer bytes in a Gather.
func (c *costs) gather(scatters bool) []Estimate {
	n, p := float64(c.n), float64(c.p)
	start := c.greet(n * p)
	linear := Estimate{
		Algo: "linear", NS: start + c.first(n, c.Hops) + (p-1)*(c.ser(n)+c.message()), Sent: n * min(1, p-1),
	}
	// Ranks on the way pass blocks on after they have received all of them.
	binomial := Estimate{
		Algo: "binomial", NS: start + c.rounds()*(c.first(n, c.Hops)+c.message()) + (p-1)*c.ser(n) + c.ser(n*p/4),
	}
	for subtree := 1; subtree < c.p; subtree *= 2 {
		binomial.Sent = max(binomial.Sent, n*float64(min(subtree, c.p-subtree)))
	}
	if scatters {
		linear.Sent, binomial.Sent = n*(p-1), n*(p-1)
	}
	return []Estimate{linear, binomial}
}

// message is the time that a rank spends on one more small message.
func (c *costs) message() float64 {
	if c.Message > 0 {
		return c.Message
	}
	return c.Latency / 4
}

func (c *costs) reduce() []Estimate {
	n, p, block := float64(c.n), float64(c.p), float64(c.block())
	sent := n * min(1, p-1)
	all := []Estimate{{
		Algo: "ring", NS: c.greet(n) + c.passAround(block) + c.first(block, c.Hops) + c.ser(n),
		Sent: sent,
	}}
	// A binomial tree is as deep as the largest power of two of ranks, and half of its levels stay near. The
	// root receives one message per round, and ranks below it fewer. On average, the last piece waits
	// for half of another one.
	depth, rounds := math.Floor(math.Log2(p)), c.rounds()
	for _, s := range c.segments(n, n) {
		hop := c.someFirst(s)
		tree := max(c.first(s, c.Hops)+rounds*c.ser(n)+c.ser(s)/2, depth*(hop+c.ser(s))+max(depth-1, 0)*c.ser(n-s))
		all = append(all, Estimate{Algo: "binomial", Segment: int64(s), Sent: sent, NS: c.greet(n) + tree})
	}
	for _, s := range c.segments(n, pipelineSegment) {
		all = append(all, Estimate{
			Algo: "chain", Segment: int64(s), Sent: sent, NS: c.greet(n) + c.passAround(s) + c.ser(n-s),
		})
	}
	return all
}

// block is the size of a rank's block of the buffer, in whole packets.
func (c *costs) block() int64 {
	packets := math.Ceil(float64(c.n) / float64(c.p) / float64(c.Chunk))
	return min(int64(packets)*c.Chunk, c.n)
}

// pairwiseLead is the number of steps that a rank of a pairwise Alltoall may be ahead, as in package p2p.
const pairwiseLead = 4

// alltoall is the cost of an Alltoall with blocks of n bytes.
func (c *costs) alltoall() []Estimate {
	n, p := float64(c.n), float64(c.p)
	start, first := c.greet(n*p), c.first(n, c.Hops)
	// A rank is a few steps ahead of what it has received, so small blocks wait for each other.
	steps := math.Ceil((p - 1) / pairwiseLead)
	hop := c.someFirst(n * p / 2) // Bruck: half of the rounds stay near
	moved := 0.0                  // Bruck: a block moves once per bit of its distance
	for i := range c.p {
		moved += n * float64(bits.OnesCount(uint(i)))
	}
	return []Estimate{
		{
			Algo: "pairwise", Sent: (p - 1) * n,
			NS: start + max(first+(p-1)*(c.ser(n)+c.message()), steps*(first+c.ser(n))),
		},
		{Algo: "bruck", NS: start + c.rounds()*(hop+c.message()) + c.ser(moved), Sent: moved},
	}
}

// pat is the cost of parallel aggregated trees, for an Allgather or a Reduce-Scatter.
func (c *costs) pat() Estimate {
	n, p := float64(c.n), float64(c.p)
	return Estimate{Algo: "pat", NS: c.greet(n*p) + c.rounds()*c.first(n, c.Hops) + (p-1)*c.ser(n), Sent: (p - 1) * n}
}
