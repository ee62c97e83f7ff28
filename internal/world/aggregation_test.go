package world

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/inc"
	"github.com/allcast/allcast/internal/settings"
)

// All ranks learn of the first rank that cannot use its aggregators.
func TestJudgeAggregators(t *testing.T) {
	works := report{Works: true}
	for _, tt := range []struct {
		reports []report
		want    Aggregation
	}{
		{[]report{works, works}, Aggregation{}},
		{[]report{works, {Why: "no route"}, {Why: "later"}}, Aggregation{Unusable: "rank 1: no route"}},
		{[]report{{}, works}, Aggregation{Unusable: "rank 0: no answer"}},
		{
			[]report{{Why: "slow"}, {Failed: true, Why: "no socket"}},
			Aggregation{Off: "rank 1: no socket", Unusable: "rank 0: slow"},
		},
	} {
		got, err := judge(tt.reports)
		if err != nil || got != tt.want || got.Usable() != (tt.want == Aggregation{}) {
			t.Errorf("%+v: got %+v, %v, want %+v", tt.reports, got, err, tt.want)
		}
	}
}

func TestRanksHaveTheSameTree(t *testing.T) {
	parse := func(text string) *inc.Tree {
		tree, err := inc.ParseTree(text, 2)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	a, b := parse("10.0.0.1:1=0,1"), parse(" 10.0.0.1:1 = 0-1 ")
	if treeHash(a) != treeHash(b) || treeHash(a) == 0 || treeHash(nil) != 0 {
		t.Error("equal trees have different hashes, or one has the hash of none")
	}
	cards := []card{{Tree: treeHash(a), Inc: 1408}, {Tree: treeHash(b), Inc: 8936}}
	if got, err := agree(cards, 0); err != nil || got.Inc != 1408 {
		t.Errorf("payload %d, %v; want the smallest one", got.Inc, err)
	}
	cards[1].Tree = treeHash(parse("10.0.0.2:1=0-1"))
	_, err := agree(cards, 0)
	if err == nil || !strings.Contains(err.Error(), "rank 1 has other aggregators than rank 0") {
		t.Errorf("got %v", err)
	}
}

func TestAggregationOff(t *testing.T) {
	tree, err := inc.ParseTree("10.0.0.1:1=0", 1)
	if err != nil {
		t.Fatal(err)
	}
	var s settings.Settings
	if why := aggregationOff(&s); !strings.Contains(why, settings.AggregatorsVar) {
		t.Errorf("without a tree: %s", why)
	}
	one := s
	one.Tree, one.Size = tree, 1
	if why := aggregationOff(&one); !strings.Contains(why, "one rank") {
		t.Errorf("one rank: %q", why)
	}
	if s.Tree = tree; aggregationOff(&s) != "" {
		t.Error("off with a tree")
	}
	s.Secure = true
	if why := aggregationOff(&s); !strings.Contains(why, "Options.Secure") {
		t.Errorf("with encryption: %s", why)
	}
	s.Secure, s.Integrity = false, true
	if why := aggregationOff(&s); !strings.Contains(why, "Options.Integrity") {
		t.Errorf("with integrity checks: %s", why)
	}
}

// Changes reach the engine in order, also those from before it exists.
func TestRelay(t *testing.T) {
	var r relay
	var got []uint32
	r.changed(inc.Aggregation{Window: 1})
	r.changed(inc.Aggregation{Window: 2})
	r.attach(func(a inc.Aggregation) { got = append(got, a.Window) })
	r.changed(inc.Aggregation{Window: 3})
	if len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("got %v, want the last change before, and the one after", got)
	}
}
