//go:build verbs

package verbs

import "testing"

// Batches of several queue pairs complete in any order, and are counted in order. Completions of ended
// batches do not count.
func TestCompletionsAreMatched(t *testing.T) {
	a, b := &udQP{}, &udQP{}
	s := &sender{dev: &Device{}, window: window{depth: maxWindow}}
	for i, q := range []*udQP{a, b, a} {
		s.batches[i] = batch{q: q, n: 10 + i}
		q.flying++
		s.next++
	}
	for i, step := range []struct {
		id   uint64
		want uint64
	}{{1<<1 | 1, 0}, {1<<1 | 1, 0}, {0<<1 | 1, 21}, {0<<1 | 1, 21}, {99<<1 | 1, 21}, {2 << 1, 21}, {2<<1 | 1, 33}} {
		s.complete(&completion{id: cu64(step.id)})
		if s.freed != step.want {
			t.Errorf("step %d: %d datagrams have completed, want %d", i, s.freed, step.want)
		}
	}
	if a.flying != 0 || b.flying != 0 || s.oldest != s.next {
		t.Errorf("%d and %d batches are in flight", a.flying, b.flying)
	}
}
