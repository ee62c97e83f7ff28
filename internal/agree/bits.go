package agree

// Set is ranks as bits, as messages carry them.
type Set []uint64

func newSet(size int) Set { return make(Set, (size+63)/64) }

// Has reports whether a rank is in the set.
func (s Set) Has(rank int) bool {
	return rank >= 0 && rank/64 < len(s) && s[rank/64]>>(rank%64)&1 == 1
}

func (s Set) add(rank int) { s[rank/64] |= 1 << (rank % 64) }

// fits reports whether there is no rank in the set that does not exist.
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

// Ranks lists the set.
func (s Set) Ranks() (ranks []int) {
	for r := range 64 * len(s) {
		if s.Has(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
