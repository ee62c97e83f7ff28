//go:build linux

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// A ratio is that of the same round. The best fixed choice is the one with the largest median ratio, and choices that
// were slow in most jobs do not count.
func TestCompare(t *testing.T) {
	m := measurement{
		Operation: "allgather", Bytes: 100, Took: choice{"ring", 0},
		Choices: []choice{{Algo: "auto"}, {"mcast", 1}, {"mcast", 4}, {Algo: "ring"}},
		Times:   [][]int64{{1000, 3000, 5000}, {2000, 2000, 2500}, {100}, {1000, 3000, 6000}},
	}
	r, _ := compare("star:4", []*measurement{&m})
	if r.Best != "mcast/1" || r.Ratio != (spread{1.5, 0.5, 2}) || r.Rounds != 3 || r.Took != "ring x1" || r.Kept {
		t.Errorf("got %+v", r)
	}
	var out bytes.Buffer
	broken, err := report(&out, false, "star:4", [][]measurement{{m}})
	if err != nil || broken != 1 || !strings.Contains(out.String(), "1.50 (0.50-2.00) too slow") {
		t.Errorf("%d cases broken, %v:\n%s", broken, err, &out)
	}
	m.Took = choice{"mcast", 1}
	if r, _ = compare("star:4", []*measurement{&m}); !r.Kept {
		t.Errorf("auto took the best choice, and %+v", r)
	}
}

func TestSplitNetworks(t *testing.T) {
	got := splitNetworks("local:4,fat-tree:32,4,2,star:8@200mbit")
	if want := []string{"local:4", "fat-tree:32,4,2", "star:8@200mbit"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Jobs without aggregators do not try inc, which would be an error.
func TestChoices(t *testing.T) {
	inc := choice{Algo: "inc"}
	for _, op := range []string{"reduce-scatter", "allreduce"} {
		if without := choices(op, 4, false); slices.Contains(without, inc) || without[0].Algo != "auto" || len(without) < 2 {
			t.Errorf("%s without aggregators: %v", op, without)
		}
		if with := choices(op, 4, true); !slices.Contains(with, inc) {
			t.Errorf("%s with aggregators: %v", op, with)
		}
	}
	if all := choices("allgather", 4, true); slices.Contains(all, inc) || !slices.Contains(all, choice{"mcast", 4}) {
		t.Errorf("allgather: %v", all)
	}
}
