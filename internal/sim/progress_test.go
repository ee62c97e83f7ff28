package sim

import "testing"

// Progress only grows, and comes close to the end. It changes no result.
func TestProgress(t *testing.T) {
	t.Parallel()
	for op, bytes := range map[string]int64{"allgather": 200e3, "allreduce": 4e6} {
		cfg := base(t, op, "fat-tree:64,8,4", bytes)
		cfg.Algo = ""
		want := resultText(t, cfg)
		var last Progress
		calls := 0
		cfg.Progress = func(p Progress) {
			calls++
			if p.Share < last.Share || p.Time < last.Time || p.Share > 1 {
				t.Errorf("%s: %+v after %+v", op, p, last)
			}
			last = p
		}
		if got := resultText(t, cfg); got != want {
			t.Errorf("%s: with progress\n%s\nwithout\n%s", op, got, want)
		}
		if calls < 2 || last.Share < 0.5 {
			t.Errorf("%s: %d calls, the last with %+v", op, calls, last)
		}
	}
}
