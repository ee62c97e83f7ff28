package paper

import (
	"strings"
	"testing"
)

// The cheap entries run as they ship, and reach what the registry records.
func TestModelEntries(t *testing.T) {
	recorded := make(map[string]Subject)
	for _, s := range Subjects() {
		recorded[s.ID] = s
	}
	for _, e := range modelEntries {
		o, err := e.Run(t.Context(), &Env{Seed: 1, Quick: true})
		if err != nil {
			t.Errorf("%s: %v", e.ID, err)
			continue
		}
		if o.Verdict != recorded[e.ID].Recorded || o.Ours == "" || o.Command == "" || len(o.Tables) == 0 {
			t.Errorf("%s: %+v", e.ID, o)
		}
	}
}

func TestScheduleIsNotTheFormulaByAccident(t *testing.T) {
	ours, err := scheduleOf(7, 3)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join([]string{group(ours, 0), group(ours, 1), group(ours, 2)}, "; ")
	if got != "P0 P2 P4; P1 P3 P5; P6" {
		t.Errorf("7 ranks in 3 chains: %s", got)
	}
	if isBalanced([][]int{{0, 1, 2}, {3}}, 4, 2) || isBalanced([][]int{{0, 2}, {1, 3}}, 4, 2) || !isBalanced(ours, 7, 3) {
		t.Error("isBalanced is wrong")
	}
}
