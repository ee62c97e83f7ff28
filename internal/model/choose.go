package model

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/allcast/allcast/internal/units"
)

// Net is the cost model's description of a network.
type Net struct {
	Rate      float64 // rate of a host's link, bytes per nanosecond
	Latency   float64 // latency of one link, nanoseconds
	Hops      int     // links of the longest path
	Crossings int     // neighbours on the ring of ranks that are not at the same switch
	Chunk     int64   // payload of a packet
	Datagram  int64   // header bytes of a multicast datagram
	Packet    int64   // header bytes of a reliable packet
	Multicast bool    // whether the network replicates datagrams
	Inc       bool    // whether the network reduces data
	Eager     int64   // largest buffer, in bytes, for which point-to-point calls send without a greeting
	Message   float64 // time that a rank spends on one more small message, nanoseconds; 0: a quarter of Latency
	Connect   float64 // a call's share of the time to connect to one more rank, nanoseconds; see costs.partners
	Whole     bool    // whether pipelined algorithms keep to their default segments; otherwise any are candidates
}

// Estimate is the expected cost of an algorithm.
type Estimate struct {
	Algo    string
	Chains  int     // mcast
	Segment int64   // pipelined point-to-point algorithms
	whole   bool    // whether Segment is what the algorithm does by default
	NS      float64 // time
	Sent    float64 // bytes that the busiest rank injects
}

// String names the algorithm and the segment, if the time holds only for that segment.
func (e Estimate) String() string {
	if e.Segment == 0 || e.whole {
		return e.Algo
	}
	return fmt.Sprintf("%s in segments of %v", e.Algo, units.Size(e.Segment))
}

// Choice is the chosen algorithm and the reason.
type Choice struct {
	Estimate
	Reason string
	All    []Estimate // candidates, fastest first
}

// closeEnough is how much slower than the fastest algorithm a choice may be if it injects
// less traffic: other jobs can use the bandwidth that it saves.
const closeEnough = 1.05

// asFast is how much slower than linear a ring may be to be preferred. Both inject the same bytes, but a ring
// sends them to a neighbour, and so over fewer links.
const asFast = 1.01

// Choose picks an algorithm for an operation of p ranks. Each rank sends n bytes; in a
// Reduce-Scatter, it receives n bytes.
func Choose(op string, p int, n int64, net Net) (Choice, error) {
	switch {
	case p < 1 || n < 0:
		return Choice{}, fmt.Errorf("%d bytes on %d ranks: there must be a rank, and sizes must be 0 or more", n, p)
	case net.Chunk < 1 || !(net.Rate > 0) || !(net.Latency >= 0):
		return Choice{}, fmt.Errorf("a network with chunks of %d bytes, a rate of %v and a latency of %v makes no sense",
			net.Chunk, net.Rate, net.Latency)
	}
	c := costs{Net: net, p: p, n: n}
	var all []Estimate
	switch op {
	case "broadcast":
		all = c.broadcast()
	case "allgather":
		all = c.allgather()
	case "reduce-scatter":
		all = c.reduceScatter()
	case "allreduce":
		all = c.allreduce()
	case "barrier":
		all = []Estimate{{Algo: "dissemination", NS: c.rounds() * c.far()}}
	case "gather", "scatter":
		all = c.gather(op == "scatter")
	case "gatherv", "scatterv":
		all = c.gather(op == "scatterv")[:1] // no rank knows all sizes, so the algorithm must not depend on them
	case "reduce":
		all = c.reduce()
	case "alltoall":
		all = c.alltoall()
	case "alltoallv":
		all = c.alltoall()[:1]
	default:
		return Choice{}, fmt.Errorf("no cost model for %q: want the name of a collective, such as allgather", op)
	}
	for i, e := range all {
		all[i].whole = e.Segment == c.defaultSegment(op, e.Algo)
		all[i].NS += net.Connect * max(0, c.partners(op, e.Algo)-c.rounds())
	}
	slices.SortStableFunc(all, func(a, b Estimate) int { return cmp.Compare(a.NS, b.NS) })
	pick := all[0]
	for _, e := range all {
		if e.NS <= closeEnough*all[0].NS && e.Sent < pick.Sent ||
			pick.Algo == "linear" && e.Algo == "ring" && e.NS <= asFast*pick.NS && e.Sent <= pick.Sent {
			pick = e
		}
	}
	return Choice{Estimate: pick, All: all, Reason: reason(pick, all)}, nil
}

// reason explains the choice of an estimate among all, of which the first is the fastest.
func reason(pick Estimate, all []Estimate) string {
	text := fmt.Sprintf("%v: %.1f us expected", pick, pick.NS/1e3)
	best := all[0]
	switch {
	case pick.Algo == best.Algo && len(all) > 1:
		next := all[1]
		for _, e := range all {
			if e.Algo != pick.Algo {
				next = e
				break
			}
		}
		text += fmt.Sprintf("; next %v with %.1f us", next, next.NS/1e3)
	case pick.Sent < best.Sent:
		text += fmt.Sprintf("; %v would take %.1f us, but the busiest rank would inject %.1f times as much",
			best, best.NS/1e3, best.Sent/max(pick.Sent, 1))
	case pick.Algo != best.Algo:
		text += fmt.Sprintf("; %v would take %.1f us, but send to distant ranks", best, best.NS/1e3)
	}
	return text
}

// costs holds the formulas. They use latency and rate, and count the store-and-forward delay
// of single packets, which is visible on fast networks.
type costs struct {
	Net
	p int
	n int64
}

// wire is the time for which n bytes and their headers occupy a link.
func (c *costs) wire(n float64, header int64) float64 {
	return (n + math.Ceil(n/float64(c.Chunk))*float64(header)) / c.Rate
}

func (c *costs) ser(n float64) float64 { return c.wire(n, c.Packet) }

// far and near are the travel times of a small message across the network and to a
// neighbour.
func (c *costs) far() float64  { return float64(c.Hops) * c.Latency }
func (c *costs) near() float64 { return 2 * c.Latency }

// greet is the time that ranks wait for each other's greeting before they send, in a call with
// a buffer of the given size.
func (c *costs) greet(buffer float64) float64 {
	if buffer <= float64(c.Eager) {
		return 0
	}
	return c.far()
}

// first is the time that the first packet of n bytes takes across h links, in addition to the
// time for which it occupies the sender's link.
func (c *costs) first(n float64, h int) float64 {
	return float64(h)*c.Latency + float64(h-1)*c.ser(min(n, float64(c.Chunk)))
}

// rounds is log2(p), rounded up.
func (c *costs) rounds() float64 { return float64(bits.Len(uint(c.p - 1))) }

// partners is the number of ranks that the busiest rank of an algorithm is connected to. Barriers connect each rank to
// about log2(p) ranks anyway. Connections to more of them are made for the sake of one algorithm, and making them takes
// longer than a small call: a mesh of 256 ranks has 65,000.
func (c *costs) partners(op, algo string) float64 {
	switch {
	case algo == "linear", algo == "pairwise", op == "reduce" && algo == "ring":
		return float64(c.p - 1)
	}
	return c.rounds()
}

func (c *costs) powerOfTwo() bool { return c.p&(c.p-1) == 0 }

// Recursive algorithms work on the largest power of two of ranks. The ranks beyond it are
// folded into the first ones, which act for two each. Rank 0 is therefore the busiest.
func (c *costs) core() int { return 1 << (bits.Len(uint(c.p)) - 1) }

// cubes is the number of blocks on rank 0's side of the cube, summed over all distances from
// the given first one.
func (c *costs) cubes(first int) (blocks float64) {
	core := c.core()
	for n := first; n < core*first; n *= 2 {
		blocks += float64(n + min(n, c.p-core))
	}
	return blocks
}

// folded is the number of blocks that a folded rank must receive: all of them.
func (c *costs) folded() float64 {
	if c.powerOfTwo() {
		return 0
	}
	return float64(c.p)
}

// barrier is the cost of the RNR barrier: half of its partners are near.
func (c *costs) barrier() float64 {
	k := float64(bits.Len(uint(c.p)) - 1)
	t := k * (c.near() + c.far()) / 2
	if !c.powerOfTwo() {
		t += c.far() // folded ranks take one more message; their release overlaps the first chunks
	}
	return t
}

func (c *costs) multicast(blocks float64, chains int, sent float64) Estimate {
	n := float64(c.n)
	return Estimate{
		Algo: "mcast", Chains: chains, Sent: sent,
		NS: c.barrier() + blocks*c.wire(n, c.Datagram) + c.first(n, c.Hops) + c.near(),
	}
}

// pipelineSegment is the segment size of chain and binary, as in package p2p. Other algorithms send whole blocks unless
// the caller sets a segment.
const pipelineSegment = 64 << 10

// defaultSegment is the segment of a pipelined algorithm unless the caller sets one.
func (c *costs) defaultSegment(op, algo string) int64 {
	switch {
	case algo == "chain" || algo == "binary":
		return min(c.n, pipelineSegment)
	case op == "allreduce" && algo == "ring":
		return c.block()
	}
	return c.n
}

// segments are the segment sizes worth trying with a pipelined algorithm.
func (c *costs) segments(n, byDefault float64) []float64 {
	if c.Whole {
		return []float64{min(n, byDefault)}
	}
	s := []float64{n}
	for k := float64(c.Chunk); k < n; k *= 4 {
		s = append(s, k)
	}
	return s
}

func (c *costs) broadcast() []Estimate {
	n, p := float64(c.n), float64(c.p)
	var all []Estimate
	if c.Multicast {
		all = append(all, c.multicast(1, 1, n))
	}
	for _, t := range []struct {
		algo  string
		radix float64
	}{{"binomial", 2}, {"knomial", 4}} {
		// The root serves its children one after the other.
		depth, sends := 0.0, 0.0
		for level := 1.0; level < p; level *= t.radix {
			depth++
			sends += min(t.radix-1, math.Ceil(p/level)-1)
		}
		all = append(all, Estimate{
			Algo: t.algo, NS: c.greet(n) + depth*c.someFirst(n) + max(sends, depth)*c.ser(n), Sent: sends * n,
		})
	}
	for _, s := range c.segments(n, pipelineSegment) {
		all = append(all,
			Estimate{
				Algo: "binary", Segment: int64(s), Sent: min(2, p-1) * n, NS: c.greet(n) + c.binaryTree(s) + 2*c.ser(n-s),
			},
			Estimate{
				Algo: "chain", Segment: int64(s), Sent: min(1, p-1) * n, NS: c.greet(n) + c.passAround(s) + c.ser(n-s),
			})
	}
	block := float64(c.block())
	all = append(all, Estimate{
		Algo: "scatter-allgather", Sent: 2 * n * (p - 1) / p,
		NS: c.greet(n) + c.rounds()*c.someFirst(block) + c.ser(n) + c.passAround(block),
	})
	return all
}

// someFirst is first for an algorithm half of whose partners are near.
func (c *costs) someFirst(n float64) float64 { return (c.first(n, c.Hops) + c.first(n, 2)) / 2 }

// passAround is the time in which n bytes go from rank to rank until all ranks have them.
func (c *costs) passAround(n float64) float64 {
	return float64(c.p-1)*(c.first(n, 2)+c.ser(n)) + c.crossings(n)
}

// crossings is the additional time of n bytes that go from rank to rank, where neighbours are at different switches.
func (c *costs) crossings(n float64) float64 {
	return float64(min(c.Crossings, c.p-1)) * (c.first(n, c.Hops) - c.first(n, 2))
}

// binaryTree is the time in which the first s bytes reach all ranks of a binary tree. A rank serves its left child
// first. The last rank to be reached is the right end of a full level, or the last rank of all.
func (c *costs) binaryTree(s float64) float64 {
	reach := func(rank int) (t float64) {
		for ; rank > 0; rank = (rank - 1) / 2 {
			t += c.someFirst(s) + c.ser(s)
			if rank%2 == 0 {
				t += c.ser(s)
			}
		}
		return t
	}
	full := 1<<(bits.Len(uint(c.p+1))-1) - 2
	return max(reach(full), reach(c.p-1))
}

func (c *costs) allgather() []Estimate {
	n, p := float64(c.n), float64(c.p)
	all := []Estimate{{Algo: "linear", NS: c.greet(n*p) + c.first(n, c.Hops) + (p-1)*c.ser(n), Sent: (p - 1) * n}}
	if c.Multicast {
		// Either all ranks send at once, paced, or one after the other, which costs one turn per rank.
		all = append(all, c.multicast(p-1, c.p, n))
		one := c.multicast(p, 1, n)
		one.NS += p * max(0, c.turn()-c.ser(n))
		all = append(all, one)
	}
	all = append(all, c.rings("ring", c.greet(n*p), p-1)...)
	gather := Estimate{Algo: "bruck", NS: c.greet(n*p) + c.rounds()*c.first(n, c.Hops) + (p-1)*c.ser(n), Sent: (p - 1) * n}
	all = append(all, gather)
	gather.Algo, gather.Sent = "recursive-doubling", n*(c.cubes(1)+c.folded())
	gather.NS += c.rounds() * (c.someFirst(n) - c.first(n, c.Hops))
	if !c.powerOfTwo() {
		gather.NS += 2*c.first(n, c.Hops) + c.ser(n) + c.ser(n*p)
	}
	return append(all, gather, c.pat())
}

// turn is the time from one rank's turn in a chain to the next one's, if blocks are short. The activation travels to
// the successor. It leaves halfway through the block on average, because short blocks end before its latency is known.
func (c *costs) turn() float64 {
	n := float64(c.n)
	travel := c.near() + (c.far()-c.near())*float64(c.Crossings)/float64(c.p)
	return travel + c.ser(min(n, float64(c.Chunk))) + c.ser(n)/2
}

// rings is the cost of a ring of the given steps, for every segment worth trying.
func (c *costs) rings(algo string, start, steps float64) []Estimate {
	n := float64(c.n)
	var all []Estimate
	for _, s := range c.segments(n, n) {
		// Either the link is busy all the time, or a rank waits for each piece.
		busy := steps*c.ser(n) + c.first(s, c.Hops)
		waits := steps*(c.first(s, 2)+c.ser(s)) + c.ser(n) - c.ser(s) + c.crossings(s)*steps/max(1, float64(c.p-1))
		all = append(all, Estimate{Algo: algo, Segment: int64(s), NS: start + max(busy, waits), Sent: steps * n})
	}
	return all
}

func (c *costs) reduceScatter() []Estimate {
	n, p := float64(c.n), float64(c.p)
	all := c.rings("ring", c.greet(n*p), p-1)
	half := Estimate{Algo: "recursive-halving", Sent: (p - 1) * n}
	half.NS = c.greet(n*p) + c.rounds()*c.someFirst(n) + (p-1)*c.ser(n)
	if !c.powerOfTwo() {
		half.NS += 2*c.first(n, c.Hops) + c.ser(n) + c.ser(n*p)
		half.Sent = p * n // a folded rank hands over all its blocks
	}
	all = append(all, half, c.pat())
	if c.Inc {
		all = append(all, c.aggregated())
	}
	return all
}

// aggregated is the cost of a Reduce-Scatter by aggregators. All ranks report that they are ready, and later that
// they have their sums, to the top of the control tree, which tells all ranks. Half of the tree's levels are near.
func (c *costs) aggregated() Estimate {
	n, p := float64(c.n), float64(c.p)
	tree := math.Floor(math.Log2(p)) * (c.near() + c.far()) / 2
	return Estimate{Algo: "inc", NS: 4*tree + c.first(n, c.Hops) + (p-1)*c.ser(n), Sent: (p - 1) * n}
}

func (c *costs) allreduce() []Estimate {
	n, p := float64(c.n), float64(c.p)
	block := costs{Net: c.Net, p: c.p, n: c.block()}
	all := block.rings("ring", c.greet(n), 2*(p-1))
	half := Estimate{Algo: "recursive-halving", Sent: n / p * (c.cubes(2) + c.folded())}
	half.NS = c.greet(n) + 2*c.rounds()*c.first(n/p, c.Hops) + 2*c.ser(n)*(p-1)/p
	if !c.powerOfTwo() {
		half.NS += 2*c.first(n, c.Hops) + 2*c.ser(n)
	}
	steps := math.Log2(float64(c.core()))
	whole := Estimate{Algo: "recursive-doubling", Sent: steps * n}
	whole.NS = c.greet(n) + steps*(c.first(n, c.Hops)+c.ser(n))
	if !c.powerOfTwo() {
		whole.NS += 2 * (c.first(n, c.Hops) + c.ser(n))
		whole.Sent += n
	}
	all = append(all, half, whole)
	if c.Inc {
		mean := costs{Net: c.Net, p: c.p, n: (c.n + int64(c.p) - 1) / int64(c.p)} // blocks share one window
		both, gather := mean.aggregated(), mean.multicast(p-1, c.p, n/p)
		both.NS += gather.NS
		both.Sent += gather.Sent
		all = append(all, both)
	}
	return all
}
