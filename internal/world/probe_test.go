package world

import (
	"reflect"
	"testing"
)

// The ranks that some rank did not hear send again: those of the reports, or all if there are too many.
func TestUnion(t *testing.T) {
	many := make([]int, maxUnheard+1)
	for i := range many {
		many[i] = i
	}
	for _, c := range []struct {
		all  []unheard
		want unheard
	}{
		{[]unheard{missing(0, nil), missing(1, nil)}, unheard{From: 1}},
		{[]unheard{missing(0, nil), missing(1, []int{5}), missing(2, []int{5, 0})}, unheard{From: 1, Ranks: []int{5, 0}}},
		{[]unheard{missing(0, many), missing(1, []int{7})}, unheard{Ranks: many[:maxUnheard], Many: true}},
		{[]unheard{missing(0, many[:40]), missing(1, many[20:])}, unheard{Ranks: many[:maxUnheard], Many: true}},
		{[]unheard{missing(0, many[1:]), missing(1, many[1:])}, unheard{Ranks: many[1:]}},
	} {
		got := union(c.all)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: got %+v, want %+v", c.all, got, c.want)
		}
	}
}
