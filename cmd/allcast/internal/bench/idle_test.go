package bench

import (
	"runtime"
	"testing"
)

func TestProcessors(t *testing.T) {
	for line, want := range map[string]processors{
		"cpu  1 2 3 40 5 6 7 8 100 100": {45, 72},
		"cpu  1 2 3 40":                 {40, 46},
		"cpu  1 x":                      {},
		"":                              {},
	} {
		if got := parseProcessors(line); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
	for _, c := range []struct {
		from, to processors
		want     float64
	}{
		{processors{10, 100}, processors{40, 200}, 30},
		{processors{10, 100}, processors{9, 200}, 0},
		{processors{10, 100}, processors{10, 100}, -1},
		{processors{}, processors{}, -1},
	} {
		if got := c.from.idleUntil(c.to); got != c.want {
			t.Errorf("%v to %v: %v %% idle, want %v", c.from, c.to, got, c.want)
		}
	}
	if p := readProcessors(); runtime.GOOS == "linux" && (p.total <= 0 || p.idle > p.total) {
		t.Errorf("this machine: %v", p)
	}
}
