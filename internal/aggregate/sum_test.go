package aggregate

import (
	"fmt"
	"testing"
)

func TestSumsOfOneLevel(t *testing.T) {
	s := listen(t, Config{})
	w := join(t, parseTree(t, fmt.Sprintf("%v=0-3", s.Addr()), 4), nil)
	window := w.ready(t)
	for n := range uint32(5) {
		w.reduceScatter(t, 3, n+1, window, 100_000)
	}
	st := s.State()
	if len(st.Jobs) != 1 || !st.Jobs[0].Usable || st.Jobs[0].Stats.Sums == 0 || st.Data.Forged != 0 {
		t.Errorf("%+v", st)
	}
}

func TestSumsOfTwoLevels(t *testing.T) {
	for _, cores := range []int{1, 2} {
		t.Run(fmt.Sprintf("cores=%d", cores), func(t *testing.T) {
			tree, top, _, _ := twoLevels(t, 6, func(c *Config) { c.Cores = cores })
			w := join(t, tree, nil)
			window := w.ready(t)
			for n := range uint32(3) {
				w.reduceScatter(t, n, 1, window, 50_000+4*int64(n))
			}
			if st := top.State(); st.Data.Unsent != 0 || st.Data.Sums == 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
