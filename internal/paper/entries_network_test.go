package paper

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/allcast/allcast/internal/testenv"
)

// slowEntries take too long for a test even in quick mode. Their parts are tested apart.
var slowEntries = []string{"fig11", "C8", "C9"}

// The cheap entries reach the verdicts of the registry.
func TestNetworkEntries(t *testing.T) {
	if testenv.Race {
		t.Skip("hundreds of simulated hosts: only without the race detector")
	}
	recorded := make(map[string]Verdict)
	for _, s := range Subjects() {
		recorded[s.ID] = s.Recorded
	}
	e := &Env{Seed: 1, Quick: true}
	for _, entry := range networkEntries {
		if slices.Contains(slowEntries, entry.ID) {
			continue
		}
		o, err := entry.Run(t.Context(), e)
		if err != nil {
			t.Errorf("%s: %v", entry.ID, err)
			continue
		}
		if o.Verdict < recorded[entry.ID] {
			t.Errorf("%s: %v, recorded is %v: %s", entry.ID, o.Verdict, recorded[entry.ID], o.Ours)
		}
		if o.Ours == "" || o.Command == "" || len(o.Tables) == 0 || o.Measured {
			t.Errorf("%s: incomplete, or measured without root: %+v", entry.ID, o)
		}
		for _, table := range o.Tables {
			for _, row := range table.Rows {
				if len(row) != len(table.Columns) {
					t.Errorf("%s: %s has a row of %d cells for %d columns", entry.ID, table.Name, len(row), len(table.Columns))
				}
			}
		}
	}
}

func TestEntriesAreTheSameForASeed(t *testing.T) {
	if testenv.Race {
		t.Skip("188 simulated hosts: only without the race detector")
	}
	once := func() string {
		o, err := oncePerLink(t.Context(), &Env{Seed: 1, Quick: true})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if a, b := once(), once(); a != b {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}

// Claim C9 on a small network: with ranks at random, hashed routes and other jobs, multicast varies less than a ring.
// Its receivers are slow, which hides the variation of the network.
func TestMulticastVariesLess(t *testing.T) {
	g := mustParse("fat-tree:48,6,3")
	i := slices.IndexFunc(causes, func(c cause) bool { return c.Name == allCauses })
	vary := func(c contender) spread {
		s, err := causes[i].vary(t.Context(), c, g, 32<<10, 1, 4)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mcast, ring := vary(slowAllgather), vary(wholeRing)
	if again := vary(wholeRing); again.Deviation != ring.Deviation || again.Mean != ring.Mean {
		t.Errorf("the ring takes %v, then %v", ring, again)
	}
	if holds, text := lessThan([]spread{mcast, ring}, allCauses, slowAllgather); !holds {
		t.Error(text)
	}
	if holds, _ := lessThan([]spread{
		{Cause: "x", contender: multicastAllgather, Mean: 1, Deviation: 1, Range: 3},
		{Cause: "x", contender: wholeRing, Mean: 1, Deviation: 1, Range: 3},
	}, "x", multicastAllgather); holds {
		t.Error("an equal deviation counts as far below")
	}
}
