package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The queue returns events by time, and simultaneous events as they were scheduled. It does so also if
// events are scheduled for the current instant, and if instants evict each other from the open ones.
func TestEventOrder(t *testing.T) {
	t.Parallel()
	for _, times := range []int64{1, 5, 300, 1e12} {
		r := rand.New(rand.NewPCG(uint64(times), 1))
		q := newEventQueue()
		type scheduled struct {
			at int64
			id int32
		}
		var want []scheduled // sorted
		var now int64
		ids := int32(0)
		push := func() {
			x := scheduled{now + r.Int64N(times), ids}
			ids++
			q.push(x.at, evTimer, x.id, nil)
			i, _ := slices.BinarySearchFunc(want, x, func(a, b scheduled) int {
				if a.at != b.at {
					return int(min(1, max(-1, a.at-b.at)))
				}
				return int(a.id - b.id)
			})
			want = slices.Insert(want, i, x)
		}
		for range 20000 {
			if len(want) == 0 || len(want) < 2000 && r.IntN(2) == 0 {
				push()
				continue
			}
			e, at, ok := q.pop()
			if !ok || (scheduled{at, e.id}) != want[0] {
				t.Fatalf("of %d times: event %d at %d (%v), want %+v", times, e.id, at, ok, want[0])
			}
			now, want = at, want[1:]
		}
		for range want {
			q.pop()
		}
		if e, at, ok := q.pop(); ok {
			t.Fatalf("event %d at %d after the last", e.id, at)
		}
	}
}
