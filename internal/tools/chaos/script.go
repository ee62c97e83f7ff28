//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// script decides what ranks do. All of them compute the same from the same numbers, so
// that nobody has to tell them.
type script struct {
	seed, generation uint64
	epoch            int
	most             int // bytes of a call
}

// step is one thing that all ranks of the main communicator do.
type step struct {
	do   string
	algo string
	on   int // which communicator; 0: the main one, others are in the pool, modulo its length
	size int // bytes in all
	root uint64
	// Split: colors, by rank modulo
	colors        int
	chains, trees int
	n             int // of a burst
}

var algorithms = map[string][]string{
	"broadcast":  {"mcast", "mcast", "mcast", "binomial", "knomial", "chain", "binary", "scatter-allgather", "auto"},
	"allgather":  {"mcast", "mcast", "mcast", "ring", "linear", "bruck", "auto"},
	"allgatherv": {"mcast", "ring", "auto"},
	"reduce":     {"ring", "auto"},
	"allreduce":  {"auto"},
}

// often says how often a step is drawn.
var often = []struct {
	do string
	n  int
}{
	{"broadcast", 25},
	{"allgather", 25},
	{"allgatherv", 6},
	{"reduce", 6},
	{"allreduce", 6},
	{"barrier", 6},
	{"burst", 8},
	{"dup", 4},
	{"split", 6},
	{"close", 8},
}

func (s script) rand(call uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed*0x9e3779b97f4a7c15+s.generation, uint64(s.epoch)<<40|call))
}

func (s script) at(call uint64) step {
	r := s.rand(call)
	all := 0
	for _, o := range often {
		all += o.n
	}
	k := r.IntN(all)
	st := step{on: r.IntN(4), root: r.Uint64(), colors: 1 + r.IntN(3), chains: 1 + r.IntN(4), trees: 1 + r.IntN(2), n: 2 + r.IntN(3)}
	for _, o := range often {
		if k -= o.n; k < 0 {
			st.do = o.do
			break
		}
	}
	if st.do == "dup" {
		st.do, st.colors = "split", 1
	}
	st.size = draw(r, s.most)
	if list := algorithms[st.do]; list != nil {
		st.algo = list[r.IntN(len(list))]
	}
	return st
}

// draw picks a size: nothing, something small, or anything up to the most, as likely on
// every scale.
func draw(r *rand.Rand, most int) int {
	switch r.IntN(10) {
	case 0:
		return 0
	case 1:
		return 1 + r.IntN(16)
	}
	top := 1 << r.IntN(23)
	return min(most, top+r.IntN(top))
}

func (st step) String() string {
	return fmt.Sprintf("%s %s, %d bytes, communicator %d", st.do, st.algo, st.size, st.on)
}

// fill is what a rank contributes to a call.
func (s script) fill(b []byte, call uint64, rank int) {
	x := s.seed ^ s.generation<<48 ^ uint64(s.epoch)<<40 ^ call<<12 ^ uint64(rank)
	x *= 0x9e3779b97f4a7c15
	var word [8]byte
	for len(b) > 0 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		if len(b) >= 8 {
			binary.LittleEndian.PutUint64(b, x)
			b = b[8:]
			continue
		}
		binary.LittleEndian.PutUint64(word[:], x)
		copy(b, word[:])
		return
	}
}
