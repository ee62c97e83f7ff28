package bpf

import "slices"

// spans are the free lines of a table.
type spans []span

type span struct{ at, n uint32 }

// take finds n consecutive lines.
func (s *spans) take(n uint32) (at uint32, ok bool) {
	for i := range *s {
		f := &(*s)[i]
		if f.n < n {
			continue
		}
		at = f.at
		f.at, f.n = f.at+n, f.n-n
		if f.n == 0 {
			*s = slices.Delete(*s, i, i+1)
		}
		return at, true
	}
	return 0, false
}

// give returns lines to the free ones.
func (s *spans) give(at, n uint32) {
	if n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(*s, at, func(f span, at uint32) int { return int(int64(f.at) - int64(at)) })
	*s = slices.Insert(*s, i, span{at, n})
	if i+1 < len(*s) && at+n == (*s)[i+1].at {
		(*s)[i].n += (*s)[i+1].n
		*s = slices.Delete(*s, i+1, i+2)
	}
	if i > 0 && (*s)[i-1].at+(*s)[i-1].n == at {
		(*s)[i-1].n += (*s)[i].n
		*s = slices.Delete(*s, i, i+1)
	}
}
