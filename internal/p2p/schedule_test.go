package p2p_test

import "math/rand/v2"

// forever is more events than any run has.
const forever = 1 << 40

// schedules are the ways in which a network may order what is not ordered.
var schedules = []struct {
	name string
	pick func(rng *rand.Rand, size int) picker
}{
	{"random", func(*rand.Rand, int) picker { return anyOf }},
	{"newest first", func(*rand.Rand, int) picker {
		return func(rng *rand.Rand, todo []event) int { return len(todo) - 1 - rng.IntN(min(len(todo), 2)) }
	}},
	{"oldest first", func(*rand.Rand, int) picker {
		return func(*rand.Rand, []event) int { return 0 }
	}},
	{"a late rank", func(rng *rand.Rand, size int) picker {
		late := rng.IntN(size)
		return avoid(func(ev event) bool { return ev.a == late })
	}},
	{"a late pair", func(rng *rand.Rand, size int) picker {
		a, b := rng.IntN(size), rng.IntN(size)
		return avoid(func(ev event) bool { return ev.a == a && ev.b == b || ev.a == b && ev.b == a })
	}},
	{"late sends", func(*rand.Rand, int) picker {
		return avoid(func(ev event) bool { return ev.kind == depart })
	}},
	{"late completions", func(*rand.Rand, int) picker {
		return avoid(func(ev event) bool { return ev.kind == heard })
	}},
}

func anyOf(rng *rand.Rand, todo []event) int { return rng.IntN(len(todo)) }

// avoid picks at random, but what is late only when nothing else was found.
func avoid(late func(event) bool) picker {
	return func(rng *rand.Rand, todo []event) int {
		at := rng.IntN(len(todo))
		for i := range min(len(todo), 64) {
			if k := (at + i) % len(todo); !late(todo[k]) {
				return k
			}
		}
		return at
	}
}
