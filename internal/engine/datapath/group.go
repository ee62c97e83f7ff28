package datapath

import "slices"

// A Group maps the world ranks of a communicator's members to their ranks in it.
type Group struct {
	Name    string // unique in the job, for tokens and keys
	Rank    int    // of this process
	Members []int
	ranks   map[int]int // by world rank; nil: both numberings are the same
	early   *earlyGroup // nil: not registered
}

// NewGroup returns the group of the members, in the order of their ranks; self is a world rank.
func NewGroup(name string, self int, members []int) Group {
	g := Group{Name: name, Rank: slices.Index(members, self), Members: members}
	ranks, same := make(map[int]int, len(members)), true
	for i, w := range members {
		ranks[w] = i
		same = same && i == w
	}
	if !same {
		g.ranks = ranks
	}
	return g
}

// RankOf is the rank of a process in the communicator.
func (g *Group) RankOf(world int) (rank int, member bool) {
	if g.ranks == nil {
		return world, world >= 0 && world < len(g.Members)
	}
	rank, member = g.ranks[world]
	return rank, member
}
