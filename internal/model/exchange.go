package model

// gather is the cost of a Gather, and of a Scatter, which is the same backwards: n bytes per rank go through
// the root's link in either algorithm.
func (c *costs) gather() []Estimate {
	n, p := float64(c.n), float64(c.p)
	start := c.greet(n * p)
	return []Estimate{
		{Algo: "linear", NS: start + c.first(n, c.Hops) + (p-1)*(c.ser(n)+c.message()), Sent: n},
		// Ranks on the way pass blocks on after they have received all of them.
		{
			Algo: "binomial", NS: start + c.rounds()*(c.first(n, c.Hops)+c.message()) + (p-1)*c.ser(n) + c.ser(n*p/4),
			Sent: n * p / 2,
		},
	}
}

// message is the time that a rank spends on one more small message.
func (c *costs) message() float64 { return c.Latency / 4 }

func (c *costs) reduce() []Estimate {
	n, p := float64(c.n), float64(c.p)
	block := max(n/p, 1)
	all := []Estimate{
		{Algo: "binomial", NS: c.greet(n) + c.rounds()*(c.first(n, c.Hops)+c.ser(n)), Sent: n},
		{
			Algo: "ring", NS: c.greet(n) + (p-1)*(c.first(block, 2)+c.ser(block)) + c.first(block, c.Hops) + c.ser(n),
			Sent: n,
		},
	}
	for _, s := range c.segments(n) {
		all = append(all, Estimate{
			Algo: "chain", Segment: int64(s), Sent: n, NS: c.greet(n) + (p-1)*(c.first(s, 2)+c.ser(s)) + c.ser(n-s),
		})
	}
	return all
}

// alltoall is the cost of an Alltoall with blocks of n bytes.
func (c *costs) alltoall() []Estimate {
	n, p := float64(c.n), float64(c.p)
	start := c.greet(n * p)
	moved := c.rounds() * n * p / 2 // Bruck: half of the blocks move in each round
	return []Estimate{
		{Algo: "pairwise", NS: start + c.first(n, c.Hops) + (p-1)*(c.ser(n)+c.message()), Sent: (p - 1) * n},
		{Algo: "bruck", NS: start + c.rounds()*(c.first(n*p/2, c.Hops)+c.message()) + c.ser(moved), Sent: moved},
	}
}

// pat is the cost of parallel aggregated trees, for an Allgather or a Reduce-Scatter.
func (c *costs) pat() Estimate {
	n, p := float64(c.n), float64(c.p)
	return Estimate{Algo: "pat", NS: c.greet(n*p) + c.rounds()*c.first(n, c.Hops) + (p-1)*c.ser(n), Sent: (p - 1) * n}
}
