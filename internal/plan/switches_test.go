package plan

import (
	"reflect"
	"testing"
)

func TestSwitches(t *testing.T) {
	for spec, want := range map[string]Switches{
		"star:8": {
			Groups: 1, Aggregators: 1, SharedTree: []Entries{{"leaf", 1, 1, 1}}, SourceSpecific: []Entries{{"leaf", 1, 8, 8}},
		},
		"fat-tree:188,12,6": {
			Groups: 6, Aggregators: 13,
			SharedTree:     []Entries{{"leaf", 12, 6, 72}, {"spine", 6, 1, 6}},
			SourceSpecific: []Entries{{"leaf", 12, 6 * 188, 72 * 188}, {"spine", 6, 188, 6 * 188}},
		},
		// Four pods; 16 of the 256 trees are used, one per aggregation switch of a pod.
		"fat-tree3:1024,32": {
			Groups: 16, Aggregators: 64 + 4 + 1,
			SharedTree: []Entries{{"leaf", 64, 16, 1024}, {"spine", 64, 1, 64}, {"core", 16, 1, 16}},
			SourceSpecific: []Entries{
				{"leaf", 64, 16384, 1 << 20}, {"spine", 64, 1024, 1 << 16}, {"core", 16, 1024, 1 << 14},
			},
		},
	} {
		want.Source = FromGraph
		if got := switchesFor(placedGraph(t, spec, 1, "random:1")); !reflect.DeepEqual(got, want) {
			t.Errorf("%s needs %+v, want %+v", spec, got, want)
		}
	}
}
