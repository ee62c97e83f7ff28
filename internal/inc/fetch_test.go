package inc

import (
	"testing"

	"github.com/allcast/allcast/internal/step"
	"github.com/allcast/allcast/internal/wire"
)

// slowly delivers a sum per interval, and ends each fetch after a time. It returns how long the aggregators were used.
func slowly(t *testing.T, interval, fetch step.Time) (s *solo, used step.Time, fetches int) {
	t.Helper()
	s, _ = begun(t, 0, 2, 2000, 100)
	s.sent()
	start := s.now
	for s.aggregated && s.repair.have < s.chunks {
		for end := s.now + interval; s.now < end; {
			for _, a := range only(s.wait(fetch), step.ActFetch) {
				fetches++
				s.wait(fetch)
				s.fetched(a)
			}
		}
		if nth := s.Record().NextFree(0, s.granted()); nth < s.granted() {
			s.sums(nth)
		}
		s.hear(1, wire.Msg{Kind: wire.MsgGrantUp, Grant: uint64(s.total)})
		s.sent()
	}
	return s, s.now - start, fetches
}

// Aggregators that deliver sums all the time, but far more slowly than fetches would, are given up within a bounded
// time.
func TestOpGivesUpSlowAggregators(t *testing.T) {
	silent := begunSilent(t)
	for _, interval := range []step.Time{2 * soloAlpha, silent / 20, silent * 9 / 100} {
		s, used, _ := slowly(t, interval, 20*step.Microsecond)
		if s.aggregated || !s.FellBack() || used > 3*silent {
			t.Errorf("a sum per %d us: aggregated %v after %d ms",
				interval/step.Microsecond, s.aggregated, used/step.Millisecond)
		}
	}
	// Fetches are nearly as slow, so a rank or the network is.
	s, _, fetches := slowly(t, silent/20, silent/50)
	if s.FellBack() || fetches > 3 {
		t.Errorf("blames aggregators although fetches are slow: %d fetches", fetches)
	}
	// Sums are slow, but fetches would not be much faster.
	if s, _, fetches = slowly(t, soloAlpha, soloAlpha/4); s.FellBack() || fetches > 1 {
		t.Errorf("fell back %v, %d fetches", s.FellBack(), fetches)
	}
}

func begunSilent(t *testing.T) step.Time {
	t.Helper()
	s, _ := begun(t, 0, 2, 10, 10)
	return s.cfg.Limits.Silent
}

// An owner reads at most 8 MiB at a time, or one chunk of every rank if that is more.
func TestOpBoundsFetches(t *testing.T) {
	for _, c := range []struct {
		size, chunk int
		want        int
		chunks      uint32
	}{{2, 1024, 2, 4096}, {4097, 1024, 2, 1}, {4098, 1024, 1, 1}, {65535, 1400, 1, 1}, {1025, 1024, 2, 4}} {
		r := &Reduction{
			Rank: 0, Size: c.size, Kind: wire.ReduceScatter, Counts: equalCounts(c.size, int64(10000*c.chunk)), Chunk: c.chunk,
		}
		o := New(Config{Reduction: r, Alpha: func() step.Time { return soloAlpha }})
		o.Step(step.Second, step.Event{Kind: step.EvStart}, nil)
		var acts []step.Action
		for _, child := range o.children {
			acts = o.Step(step.Second, step.Event{Kind: step.EvMsg, From: child, Msg: &wire.Msg{
				Kind: wire.MsgReady, Digest: o.digest,
			}}, nil)
		}
		if f := only(acts, step.ActFetch); len(f) != c.want || f[0].N != c.chunks {
			t.Errorf("%d ranks, chunks of %d bytes: %d fetches of %d chunks", c.size, c.chunk, len(f), f[0].N)
		}
	}
}
