package control

import (
	"testing"

	"github.com/allcast/allcast/internal/inc"
)

// The log names this rank's own aggregator only if the reason names none.
func TestReasonNamesAggregator(t *testing.T) {
	tree, err := inc.ParseTree("10.0.0.1:7900;10.0.0.2:7900=0-1>10.0.0.1:7900", 2)
	if err != nil {
		t.Fatal(err)
	}
	for why, want := range map[string]bool{
		"aggregator 10.0.0.1:7900: no answer for 10s":      true,
		"aggregator 10.0.0.3:7900: no answer for 10s":      false,
		"the aggregators did not deliver the sums in time": false,
	} {
		if got := names(why, tree); got != want {
			t.Errorf("%q: %t", why, got)
		}
	}
}
