package p2p_test

import (
	"fmt"
	"testing"

	"github.com/allcast/allcast/internal/p2p"
)

// A reduction that follows the marks of its plan never reads a range that holds both input and sums,
// and finds all it needs in the input, in the result or in a Partial.
func TestOwnership(t *testing.T) {
	t.Parallel()
	for _, kind := range []p2p.Kind{p2p.ReduceScatter, p2p.Allreduce} {
		for _, algo := range p2p.Algorithms(kind) {
			for size := 1; size <= 33; size++ {
				for _, segment := range []int64{0, 3, 8} {
					name := fmt.Sprintf("%v %s, %d ranks, segments of %d", kind, algo, size, segment)
					for rank := range size {
						s := p2p.Spec{Kind: kind, Rank: rank, Size: size, Bytes: int64(5*size + 3), Segment: segment}
						s.Counts = make([]int64, size)
						for i := range s.Counts {
							s.Counts[i] = int64(5 + i%3*4)
						}
						p, err := p2p.New(algo, s)
						if err != nil {
							t.Fatal(err)
						}
						if p.Scratch > 0 {
							checkApart(t, name, p)
						} else {
							checkOwnership(t, name, p)
						}
					}
				}
			}
		}
	}
}

// checkApart checks a plan in which every sum has memory of its own: no receive changes what was there.
func checkApart(t *testing.T, name string, p *p2p.Plan) {
	t.Helper()
	written := make([]bool, p.Output+p.Scratch)
	for i, r := range p.Recvs {
		if r.Apart != (r.Off >= p.Output) || r.Apart && (r.Base+r.Len > r.Off) {
			t.Fatalf("%s, rank %d: receive %d, %+v, does not make its sum apart", name, p.Rank, i, r)
		}
		for at := r.Off; at < r.Off+r.Len; at++ {
			if written[at] {
				t.Fatalf("%s, rank %d: receive %d, %+v, changes a sum", name, p.Rank, i, r)
			}
			written[at] = true
		}
	}
	for i, s := range p.Sends {
		if s.Input != (s.Off < p.Output) {
			t.Fatalf("%s, rank %d: send %d, %+v, reads the wrong memory", name, p.Rank, i, s)
		}
	}
}

func checkOwnership(t *testing.T, name string, p *p2p.Plan) {
	t.Helper()
	received := make([]bool, p.Bytes) // after the receives so far
	uniform := func(off, n int64) (some, all bool) {
		all = true
		for _, r := range received[off : off+n] {
			some, all = some || r, all && r
		}
		return some, all
	}
	sends := make([]int, len(p.Partials))
	inPartial := func(off, n int64) int {
		for i, q := range p.Partials {
			if off >= q.Off && off+n <= q.Off+q.Len {
				return i
			}
		}
		return -1
	}
	for i := 0; i <= len(p.Recvs); i++ {
		for _, s := range p.Sends {
			if int(s.After) != i || s.Len == 0 {
				continue
			}
			some, all := uniform(s.Off, s.Len)
			if some != all || s.Input != !some {
				t.Fatalf("%s, rank %d: send %+v after %d receives: some %v, all %v", name, p.Rank, s, i, some, all)
			}
			if s.Input {
				continue
			}
			k := inPartial(s.Off, s.Len)
			if k < 0 {
				t.Fatalf("%s, rank %d: no memory for %+v in %v", name, p.Rank, s, p.Partials)
			}
			sends[k]++
		}
		if i < len(p.Recvs) {
			r := p.Recvs[i]
			some, all := uniform(r.Off, r.Len)
			if r.Len > 0 && (some != all || r.First != (r.Reduce && !some)) {
				t.Fatalf("%s, rank %d: receive %+v: some %v, all %v", name, p.Rank, r, some, all)
			}
			for at := r.Off; at < r.Off+r.Len; at++ {
				received[at] = true
			}
		}
	}
	for i, q := range p.Partials {
		if sends[i] != q.Sends {
			t.Fatalf("%s, rank %d: %+v is sent %d times", name, p.Rank, q, sends[i])
		}
		if i > 0 && p.Partials[i-1].Off+p.Partials[i-1].Len > q.Off {
			t.Fatalf("%s, rank %d: ranges overlap: %v", name, p.Rank, p.Partials)
		}
	}
}
