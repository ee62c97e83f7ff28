//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
)

// script determines the steps of all ranks. All ranks compute the same steps from the same numbers, so
// they need no coordinator.
type script struct {
	mode             mode
	seed, generation uint64
	epoch            int
	maxBytes         int // maximum bytes of a call
}

// step is one step of all ranks of the main communicator.
type step struct {
	do    string
	algo  string
	on    int // communicator: 0 is the main one, others index the pool modulo its length
	size  int // total bytes
	chunk int // payload of a datagram; 0 for the library's choice
	root  uint64
	// Number of colors of a Split; a rank's color is its rank modulo colors.
	colors        int
	chains, trees int
	n             int  // number of calls of a burst, or of buffers of a coalesced call
	alloc         bool // whether buffers are from Alloc
	delay         int  // messages: number of steps after which the rank waits for them
}

var algorithms = map[string][]string{
	"broadcast":       {"mcast", "mcast", "mcast", "binomial", "knomial", "chain", "binary", "scatter-allgather", "auto"},
	"allgather":       {"mcast", "mcast", "mcast", "ring", "linear", "bruck", "pat", "recursive-doubling", "auto"},
	"allgatherv":      {"mcast", "ring", "pat", "auto"},
	"reduce-scatter":  {"ring", "pat", "recursive-halving", "auto"},
	"reduce-scatterv": {"ring", "pat", "recursive-halving", "auto"},
	"allreduce":       {"ring", "recursive-halving", "auto"},
	"gather":          {"linear", "binomial", "auto"},
	"scatter":         {"linear", "binomial", "auto"},
	"reduce":          {"binomial", "chain", "ring", "auto"},
	"alltoall":        {"pairwise", "bruck", "auto"},

	"broadcast-coalesced": {"mcast", "binomial", "auto"},
	"allgather-coalesced": {"mcast", "ring", "auto"},
}

// odds lists steps with their relative frequencies.
type odds []struct {
	do string
	n  int
}

// allSteps are the steps of the modes faults and cancel.
var allSteps = odds{
	{"broadcast", 25},
	{"allgather", 25},
	{"allgatherv", 6},
	{"reduce-scatter", 4},
	{"reduce-scatterv", 4},
	{"allreduce", 6},
	{"gather", 4},
	{"gatherv", 4},
	{"scatter", 4},
	{"scatterv", 4},
	{"reduce", 4},
	{"alltoall", 4},
	{"alltoallv", 4},
	{"broadcast-coalesced", 4},
	{"allgather-coalesced", 4},
	{"ring", 8},
	{"any-source", 5},
	{"truncated", 2},
	{"group", 6},
	{"subset", 8},
	{"barrier", 6},
	{"burst", 8},
	{"dup", 4},
	{"split", 6},
	{"close", 8},
}

// reduceSteps are the steps of mode aggregators: reductions next to Allgathers. All communicators have all ranks.
var reduceSteps = odds{
	{"reduce-scatter", 8},
	{"reduce-scatterv", 4},
	{"allreduce", 8},
	{"allgather", 4},
	{"barrier", 1},
	{"dup", 1},
	{"close", 1},
}

// multicastSteps are the steps that can lose datagrams.
var multicastSteps = odds{{"broadcast", 4}, {"allgather", 4}, {"allgatherv", 1}, {"burst", 1}}

func (o odds) draw(r *rand.Rand) string {
	all := 0
	for _, e := range o {
		all += e.n
	}
	k := r.IntN(all)
	for _, e := range o {
		if k -= e.n; k < 0 {
			return e.do
		}
	}
	panic("chaos: draw beyond the sum of the odds")
}

func (s script) rand(call uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed*0x9e3779b97f4a7c15+s.generation, uint64(s.epoch)<<40|call))
}

func (s script) at(call uint64) step {
	r := s.rand(call)
	st := step{
		on: r.IntN(4), root: r.Uint64(), colors: 1 + r.IntN(3), chains: 1 + r.IntN(4), trees: 1 + r.IntN(maxTrees),
		n: 2 + r.IntN(3), alloc: r.IntN(2) == 0, delay: max(0, r.IntN(8)-3),
	}
	if s.mode == modeLoss {
		st.do, st.algo, st.size, st.chunk = multicastSteps.draw(r), "mcast", drawLarge(r, s.maxBytes), 512<<r.IntN(4)
		return st
	}
	steps := allSteps
	if s.mode == modeAggregators {
		steps = reduceSteps
	}
	if st.do = steps.draw(r); st.do == "dup" {
		st.do, st.colors = "split", 1
	}
	st.size = drawSize(r, s.maxBytes)
	if list := algorithms[st.do]; list != nil {
		st.algo = list[r.IntN(len(list))]
	}
	if s.mode == modeAggregators && strings.Contains(st.do, "reduce") {
		st.algo = "inc"
	}
	return st
}

// part returns one call of a burst.
func (st step) part(i int) step {
	one := st
	one.do, one.on, one.size = "allgather", st.on+i, st.size/st.n
	if st.algo == "" {
		one.algo = algorithms["allgather"][(st.root+uint64(i))%7]
	}
	return one
}

// drawSize returns a size: 0, something small, or any size up to limit, with equal probability on every
// scale.
func drawSize(r *rand.Rand, limit int) int {
	switch r.IntN(10) {
	case 0:
		return 0
	case 1:
		return 1 + r.IntN(16)
	}
	top := 1 << r.IntN(23)
	return min(limit, top+r.IntN(top))
}

// drawLarge returns a size from limit/8 to limit, with equal probability on every scale.
func drawLarge(r *rand.Rand, limit int) int {
	top := max(1, limit>>(1+r.IntN(3)))
	return top + r.IntN(top)
}

func (st step) String() string {
	return fmt.Sprintf("%s %s, %d bytes, communicator %d", st.do, st.algo, st.size, st.on)
}

// pattern generates the contribution of a rank to a call. Each number follows from the previous one.
type pattern uint64

func (s script) pattern(call uint64, rank int) pattern {
	x := s.seed ^ s.generation<<48 ^ uint64(s.epoch)<<40 ^ call<<12 ^ uint64(rank)
	return pattern(x * 0x9e3779b97f4a7c15)
}

func (p *pattern) next() uint64 {
	x := *p
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*p = x
	return uint64(x)
}

// fill writes the pattern to b.
func (p pattern) fill(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, p.next())
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], p.next())
	copy(b, word[:])
}

// check compares b with the pattern.
func (p pattern) check(b []byte) error {
	all, bad, first := len(b), 0, -1
	var word [8]byte
	for at := 0; at < all; at += 8 {
		want := p.next()
		if len(b) >= at+8 && binary.LittleEndian.Uint64(b[at:]) == want {
			continue
		}
		binary.LittleEndian.PutUint64(word[:], want)
		for i, w := range word[:min(8, all-at)] {
			if b[at+i] != w {
				if bad++; first < 0 {
					first = at + i
				}
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d bytes are wrong, the first at %d", bad, all, first)
	}
	return nil
}
