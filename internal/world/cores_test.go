package world

import (
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// A rank's workers get its share of the machine, and at least one processor. GOMAXPROCS overrides that.
func TestCores(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	all := min(runtime.GOMAXPROCS(0), processors())
	for _, c := range []struct {
		name  string
		cards []card
		want  int
	}{
		{"alone", []card{{Machine: 7}, {Machine: 8}}, all},
		{"unknown machines", []card{{}, {}}, all},
		{"more ranks than processors", slices.Repeat([]card{{Machine: 7}}, 2*processors()), 1},
	} {
		ranks, err := strconv.Atoi(sharing(c.cards)[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := cores(ranks); got != c.want {
			t.Errorf("%s: %d cores, want %d", c.name, got, c.want)
		}
	}
	t.Setenv("GOMAXPROCS", "3")
	if got := cores(2); got != runtime.GOMAXPROCS(0) {
		t.Errorf("with GOMAXPROCS: %d cores, want %d", got, runtime.GOMAXPROCS(0))
	}
}

func TestCountList(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5, "": 0, "x": 0, "3-1": 0, "0-": 0, "-1": 0} {
		if got := countList(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}
