package p2p_test

import (
	"math/rand/v2"

	"github.com/allcast/allcast/internal/clustertest"
)

// schedules are the ways in which a network may order events.
var schedules = []struct {
	name  string
	order func(rng *rand.Rand, size int) clustertest.Order
}{
	{"random", func(*rand.Rand, int) clustertest.Order { return clustertest.Random }},
	{"newest first", func(*rand.Rand, int) clustertest.Order { return clustertest.Newest }},
	{"oldest first", func(*rand.Rand, int) clustertest.Order { return clustertest.Oldest }},
	{"a late rank", func(rng *rand.Rand, size int) clustertest.Order {
		late := rng.IntN(size)
		return clustertest.Avoid(func(q *clustertest.Pending) bool {
			if q.Kind == "message" || q.Kind == "arrive" {
				return q.From == late
			}
			return q.At.ID == late
		})
	}},
	{"a late pair", func(rng *rand.Rand, size int) clustertest.Order {
		a, b := rng.IntN(size), rng.IntN(size)
		return clustertest.Avoid(func(q *clustertest.Pending) bool {
			return q.From == a && q.At.ID == b || q.From == b && q.At.ID == a
		})
	}},
	{"late sends", lateKind("depart")},
	{"late completions", lateKind("heard")},
}

func lateKind(kind string) func(*rand.Rand, int) clustertest.Order {
	return func(*rand.Rand, int) clustertest.Order {
		return clustertest.Avoid(func(q *clustertest.Pending) bool { return q.Kind == kind })
	}
}
