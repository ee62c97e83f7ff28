package demo

import (
	"strings"
	"testing"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/cmd/allcast/internal/bench"
	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

func TestJSON(t *testing.T) {
	lines := clitest.JSON(t, "demo --ranks 2 --json")
	sent := map[string]float64{}
	for _, l := range lines {
		if l["verified"] != true || l["wrong"] != 0. || l["bytes"] != float64(bytes) || l["ranks"] != 2. {
			t.Errorf("%v", l)
		}
		sent[l["op"].(string)+" "+l["algo"].(string)] = l["sent_bytes"].(float64)
	}
	for _, op := range []string{"broadcast", "allgather"} {
		for _, algo := range allcast.Algorithms(op) {
			if sent[op+" "+algo] < bytes {
				t.Errorf("%s by %s: the busiest rank sent %.0f bytes", op, algo, sent[op+" "+algo])
			}
		}
	}
}

func TestTable(t *testing.T) {
	var out, errs strings.Builder
	e := &cli.Env{Stdout: &out, Stderr: &errs}
	rows := []row{testRow("mcast", 1<<20, 100), testRow("ring", 7<<20, 200)}
	if err := report(e, rows, false); err != nil || errs.Len() != 0 {
		t.Fatal(err, errs.String())
	}
	for _, want := range []string{
		"8 processes", "what one rank sends", "ring     0.20      7.00     7.00x", "yes",
		"\nAllgather at 8 ranks: with ring", "\nYou have seen",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
	rows[1].Verified = false
	out.Reset()
	if err := report(e, rows, true); err != nil || !strings.Contains(out.String(), " no\n") ||
		!strings.Contains(errs.String(), "wrong") {
		t.Errorf("%v: %s%s", err, out.String(), errs.String())
	}
}

func testRow(algo string, sent int64, us float64) row {
	return row{&bench.Result{
		Subject: bench.Subject{Op: "allgather", Algo: algo, Ranks: 8}, Traffic: bench.Traffic{SentBytes: sent},
		Outcome: bench.Outcome{Time: bench.Times{P50: us}},
	}, true}
}

// The last line compares the measurements, whichever algorithm is faster.
func TestGain(t *testing.T) {
	for ringTime, want := range map[float64]string{
		200: "took 2.00 times as long",
		50:  "was faster here, in 0.50 of the time",
	} {
		if got := gain([]row{testRow("mcast", 1<<20, 100), testRow("ring", 7<<20, ringTime)}); !strings.Contains(got,
			want) || !strings.Contains(got, "7.00 times as much") {
			t.Error(got)
		}
	}
}
