package agree

// Set is a set of ranks as bits, in the format of messages.
type Set []uint64

func newSet(size int) Set { return make(Set, (size+63)/64) }

// Has reports whether a rank is in the set.
func (s Set) Has(rank int) bool {
	return rank >= 0 && rank/64 < len(s) && s[rank/64]>>(rank%64)&1 == 1
}

func (s Set) add(rank int) { s[rank/64] |= 1 << (rank % 64) }

// fits reports whether all ranks in the set are below size.
func (s Set) fits(size int) bool {
	if len(s) > (size+63)/64 {
		return false
	}
	for r := size; r < 64*len(s); r++ {
		if s.Has(r) {
			return false
		}
	}
	return true
}

func (s Set) copy() Set { return append(Set(nil), s...) }

// Ranks returns the ranks in the set.
func (s Set) Ranks() (ranks []int) {
	for r := range 64 * len(s) {
		if s.Has(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
