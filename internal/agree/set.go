package agree

// Set is a set of ranks as bits, in the format of messages.
type Set []uint64

func newSet(size int, ranks ...int) Set {
	s := make(Set, (size+63)/64)
	for _, r := range ranks {
		s.add(r)
	}
	return s
}

// Has reports whether a rank is in the set.
func (s Set) Has(rank int) bool {
	return rank >= 0 && rank/64 < len(s) && s[rank/64]>>(rank%64)&1 == 1
}

func (s Set) add(rank int) { s[rank/64] |= 1 << (rank % 64) }

// fits reports whether all ranks in the set are below size.
func (s Set) fits(size int) bool {
	return 64*len(s) <= size || len(s) == (size+63)/64 && s[size/64]>>(size%64) == 0
}

// Ranks returns the ranks in the set.
func (s Set) Ranks() (ranks []int) {
	for r := range 64 * len(s) {
		if s.Has(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
