package clustertest

import "github.com/allcast/allcast/internal/step"

// An Order chooses the queue whose next event happens, nil if there is none. It may choose only
// queues that are enabled.
type Order func(c *Cluster, ready []*Pending) *Pending

// Random gives each queue the same chance.
func Random(c *Cluster, ready []*Pending) *Pending {
	return Avoid(nil)(c, ready)
}

// Avoid chooses at random, but a late queue only if it finds no other.
func Avoid(late func(*Pending) bool) Order {
	return func(c *Cluster, ready []*Pending) *Pending {
		if len(ready) == 0 {
			return nil
		}
		var delayed *Pending
		for i, at := 0, c.Rand.IntN(len(ready)); i < len(ready); i++ {
			q := ready[(at+i)%len(ready)]
			if !q.enabled() {
				continue
			}
			if late == nil || !late(q) {
				return q
			}
			if delayed == nil {
				delayed = q
			}
		}
		return delayed
	}
}

// Oldest lets everything happen in the order in which it was caused.
func Oldest(_ *Cluster, ready []*Pending) *Pending { return oldest(ready, (*Pending).enabled) }

func oldest(ready []*Pending, which func(*Pending) bool) (first *Pending) {
	for _, q := range ready {
		if (first == nil || q.stamps[0].serial < first.stamps[0].serial) && which(q) {
			first = q
		}
	}
	return first
}

// Newest chooses one of the two queues that got an event last.
func Newest(c *Cluster, ready []*Pending) *Pending {
	newer := func(a, b *Pending) bool {
		return b == nil || a.stamps[len(a.stamps)-1].serial > b.stamps[len(b.stamps)-1].serial
	}
	var first, second *Pending
	for _, q := range ready {
		switch {
		case !q.enabled():
		case newer(q, first):
			first, second = q, first
		case newer(q, second):
			second = q
		}
	}
	if second != nil && c.Rand.IntN(2) == 0 {
		return second
	}
	return first
}

// Fair chooses at random, but the oldest event when it has waited for longer than patience.
func Fair(patience step.Time) Order {
	return func(c *Cluster, ready []*Pending) *Pending {
		if q := Oldest(c, ready); q == nil || q.stamps[0].at+patience < c.Now {
			return q
		}
		return Random(c, ready)
	}
}

// Chosen lets choose pick one of the queues that are enabled, by its index among n.
func Chosen(choose func(n int) int) Order {
	return func(_ *Cluster, ready []*Pending) *Pending {
		var enabled []*Pending
		for _, q := range ready {
			if q.enabled() {
				enabled = append(enabled, q)
			}
		}
		if len(enabled) == 0 {
			return nil
		}
		return enabled[choose(len(enabled))]
	}
}

// Exhaust runs a test once for every sequence of choices that it can make. The test calls choose for
// each of them, and must depend on nothing else.
func Exhaust(test func(choose func(n int) int)) (runs int) {
	var path, limits []int
	for {
		depth := 0
		test(func(n int) int {
			if depth == len(path) {
				path, limits = append(path, 0), append(limits, n)
			}
			depth++
			return path[depth-1]
		})
		runs++
		last := len(path) - 1
		for ; last >= 0 && path[last] == limits[last]-1; last-- {
		}
		if last < 0 {
			return runs
		}
		path, limits = path[:last+1], limits[:last+1]
		path[last]++
	}
}
