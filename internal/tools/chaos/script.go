//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// script decides what ranks do. All of them compute the same from the same numbers, so that nobody has
// to tell them.
type script struct {
	mode             mode
	seed, generation uint64
	epoch            int
	most             int // bytes of a call
}

// step is one thing that all ranks of the main communicator do.
type step struct {
	do    string
	algo  string
	on    int // which communicator; 0: the main one, others are in the pool, modulo its length
	size  int // bytes in all
	chunk int // payload of a datagram; 0: as the library chooses
	root  uint64
	// Split: colors, by rank modulo
	colors        int
	chains, trees int
	n             int  // of a burst
	alloc         bool // buffers are from Alloc
}

var algorithms = map[string][]string{
	"broadcast":  {"mcast", "mcast", "mcast", "binomial", "knomial", "chain", "binary", "scatter-allgather", "auto"},
	"allgather":  {"mcast", "mcast", "mcast", "ring", "linear", "bruck", "auto"},
	"allgatherv": {"mcast", "ring", "auto"},
	"reduce":     {"ring", "auto"},
	"allreduce":  {"auto"},
}

// odds says how often a step is drawn.
type odds []struct {
	do string
	n  int
}

// everything is what ranks do unless they only lose datagrams.
var everything = odds{
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

// multicasts is what can lose datagrams.
var multicasts = odds{{"broadcast", 4}, {"allgather", 4}, {"allgatherv", 1}, {"burst", 1}}

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
	panic("chaos: more was drawn than there is")
}

func (s script) rand(call uint64) *rand.Rand {
	return rand.New(rand.NewPCG(s.seed*0x9e3779b97f4a7c15+s.generation, uint64(s.epoch)<<40|call))
}

func (s script) at(call uint64) step {
	r := s.rand(call)
	st := step{
		on: r.IntN(4), root: r.Uint64(), colors: 1 + r.IntN(3), chains: 1 + r.IntN(4), trees: 1 + r.IntN(2), n: 2 + r.IntN(3),
		alloc: r.IntN(2) == 0,
	}
	if s.mode == modeLoss {
		st.do, st.algo, st.size, st.chunk = multicasts.draw(r), "mcast", drawLarge(r, s.most), 512<<r.IntN(4)
		return st
	}
	if st.do = everything.draw(r); st.do == "dup" {
		st.do, st.colors = "split", 1
	}
	st.size = draw(r, s.most)
	if list := algorithms[st.do]; list != nil {
		st.algo = list[r.IntN(len(list))]
	}
	return st
}

// part is one call of a burst.
func (st step) part(i int) step {
	one := st
	one.do, one.on, one.size = "allgather", st.on+i, st.size/st.n
	if st.algo == "" {
		one.algo = algorithms["allgather"][(st.root+uint64(i))%5]
	}
	return one
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

// drawLarge picks a size from an eighth of the most to the most, as likely on every scale.
func drawLarge(r *rand.Rand, most int) int {
	top := max(1, most>>(1+r.IntN(3)))
	return top + r.IntN(top)
}

func (st step) String() string {
	return fmt.Sprintf("%s %s, %d bytes, communicator %d", st.do, st.algo, st.size, st.on)
}

// pattern is what a rank contributes to a call: numbers that follow from the one before.
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

// fill writes the pattern.
func (p pattern) fill(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, p.next())
	}
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], p.next())
	copy(b, word[:])
}

// check compares bytes with the pattern.
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
