package allcast

import (
	"testing"

	"github.com/allcast/allcast/internal/engine"
	"github.com/allcast/allcast/internal/wire"
)

// testSeries returns a series with the given times at sizes 1000, 10000 and so on, in ns. A choice with fewer times
// was left out of the larger sizes.
func testSeries(kind wire.CallKind, size int, times map[choice][]float64) *series {
	s := newSeries(kind, size)
	for level, bytes := 0, int64(1000); level < 3; level, bytes = level+1, bytes*10 {
		var list []int
		var took [][]float64
		for i, c := range s.choices {
			if level < len(times[c]) {
				t := times[c][level]
				list, took = append(list, i), append(took, []float64{9 * t, t, t}) // one repetition was disturbed
			}
		}
		s.add(bytes, list, took)
	}
	return s
}

// A series interpolates between its measurements and chooses the fastest. Multicast wins near ties, and above the
// largest size.
func TestSeriesBest(t *testing.T) {
	one := choice{engine.Multicast, 1}
	binomial, knomial := choice{algo: "binomial"}, choice{algo: "knomial"}
	s := testSeries(wire.Broadcast, 8, map[choice][]float64{
		one: {1000, 1000, 2000}, binomial: {100, 1000, 1900}, knomial: {95, 1100},
	})
	for _, x := range []struct {
		bytes int64
		want  choice
	}{
		{0, binomial},
		{1000, binomial}, // knomial is faster, but not clearly
		{5500, binomial},
		{9999, one},
		{10_000, one},
		{55_000, one},
		{100_000, binomial}, // mcast is too slow for a tie
		{100_001, one},
		{1 << 40, one},
	} {
		if got := s.best(x.bytes); got != x.want {
			t.Errorf("%d bytes: %+v, want %+v", x.bytes, got, x.want)
		}
	}
	s.step = 1000 // above it multicast takes at least as long as at the next size
	if got := s.expected(0, 1001); got != 1000 {
		t.Errorf("multicast above the step takes %v ns, want 1000", got)
	}
}

// Above the largest size all ranks send at once if the network bounds the time and that was nearly as fast as one
// chain. If the processors bound it, it must have been faster.
func TestSeriesChains(t *testing.T) {
	one, two, all := choice{engine.Multicast, 1}, choice{engine.Multicast, 2}, choice{engine.Multicast, 8}
	for _, x := range []struct {
		small float64 // time at the smallest size
		all   float64 // time at the largest size with all ranks sending
		want  int
	}{{100, 900, 8}, {100, 1100, 8}, {100, 1130, 1}, {500, 990, 8}, {500, 1010, 1}} {
		c := &calibration{size: 8, series: map[wire.CallKind]*series{
			wire.Allgather: testSeries(wire.Allgather, 8, map[choice][]float64{
				one: {x.small, 600, 1000}, two: {x.small, 600, 1060}, all: {x.small, 610, x.all},
			}),
		}}
		if got := c.chains(wire.Allgather, 8, 1<<20); got != x.want {
			t.Errorf("%v ns with 8 chains, %v for a small size: %d chains, want %d", x.all, x.small, got, x.want)
		}
		if got := c.chains(wire.Allgather, 8, 10_000); got != 1 {
			t.Errorf("%d chains for a size at which one is the fastest", got)
		}
		if got := c.chains(wire.Broadcast, 8, 1<<20); got != 1 {
			t.Errorf("%d chains without a measurement", got)
		}
	}
}

// Slow choices are left out once two sizes are known, and so are those that the budget does not pay for. Multicast
// stays.
func TestSeriesPromising(t *testing.T) {
	one, binomial, knomial := choice{engine.Multicast, 1}, choice{algo: "binomial"}, choice{algo: "knomial"}
	names := func(s *series, list []int) (all []choice) {
		for _, i := range list {
			all = append(all, s.choices[i])
		}
		return all
	}
	empty := newSeries(wire.Broadcast, 8)
	if list, cost := empty.promising(1, 0); len(list) != len(empty.choices) || cost != 0 {
		t.Errorf("without measurements: %v, %v ns", names(empty, list), cost)
	}
	s := newSeries(wire.Broadcast, 8)
	s.add(10, []int{0, 1, 2}, [][]float64{{900}, {100}, {800}})
	if list, _ := s.promising(100, 1e9); len(list) != 3 {
		t.Errorf("after one size: %v", names(s, list))
	}
	s.add(100, []int{0, 1, 2}, [][]float64{{900}, {100}, {800}})
	list, cost := s.promising(1000, 1e9)
	if got := names(s, list); len(got) != 2 || got[0] != one || got[1] != binomial || cost != 1000 {
		t.Errorf("after two sizes: %v, %v ns", got, cost)
	}
	if list, _ := testSeries(wire.Broadcast, 8, map[choice][]float64{
		one: {500, 500, 500}, binomial: {400, 400, 400}, knomial: {300, 300, 300},
	}).promising(1<<20, 850); len(list) != 2 {
		t.Errorf("%v for a budget of 850 ns", list)
	}
}

// A communicator that is much smaller than the world does not use the world's measurements.
func TestCalibrationOfSmallCommunicators(t *testing.T) {
	c := &calibration{size: 8, series: map[wire.CallKind]*series{wire.Broadcast: newSeries(wire.Broadcast, 8)}}
	if c.of(wire.Broadcast, 8) == nil || c.of(wire.Broadcast, 5) == nil {
		t.Error("a communicator of about the world's size has no measurements")
	}
	if c.of(wire.Broadcast, 4) != nil || c.of(wire.Allreduce, 8) != nil ||
		(*calibration)(nil).of(wire.Broadcast, 8) != nil {
		t.Error("measurements that do not exist, or that do not apply")
	}
}

// A choice that fell back is gone, with its times.
func TestRemoveChoice(t *testing.T) {
	s := newSeries(wire.ReduceScatter, 8)
	s.add(10, []int{0, 1}, [][]float64{{900}, {100}})
	s.remove([]choice{{algo: "inc"}})
	if got := s.best(10); got.algo != "auto" || len(s.choices) != 1 || len(s.points) != 1 {
		t.Errorf("chose %v of %v", got, s)
	}
	if list, _ := s.promising(100, 1e9); len(list) != 1 {
		t.Errorf("%d choices are left", len(list))
	}
}
