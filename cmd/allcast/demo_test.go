package main

import (
	"strings"
	"testing"

	"github.com/allcast/allcast"
)

func TestDemoJSON(t *testing.T) {
	lines := jsonOf(t, "demo --ranks 2 --json")
	sent := map[string]float64{}
	for _, l := range lines {
		if l["verified"] != true || l["wrong"] != 0. || l["bytes"] != float64(demoBytes) || l["ranks"] != 2. {
			t.Errorf("%v", l)
		}
		sent[l["op"].(string)+" "+l["algo"].(string)] = l["sent_bytes"].(float64)
	}
	for _, op := range []string{"broadcast", "allgather"} {
		for _, algo := range allcast.Algorithms(op) {
			if sent[op+" "+algo] < demoBytes {
				t.Errorf("%s by %s: the busiest rank sent %.0f bytes", op, algo, sent[op+" "+algo])
			}
		}
	}
}

func TestDemoTable(t *testing.T) {
	var out, errs strings.Builder
	a := &app{stdout: &out, stderr: &errs}
	rows := []demoRow{demoTestRow("mcast", 1<<20, 100), demoTestRow("ring", 7<<20, 200)}
	if err := a.demoReport(rows, false); err != nil || errs.Len() != 0 {
		t.Fatal(err, errs.String())
	}
	for _, want := range []string{"8 processes", "what one rank sends", "ring     0.20      7.00     7.00x", "yes", "\nAllgather at 8 ranks: with ring"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, out.String())
		}
	}
	rows[1].Verified = false
	out.Reset()
	if err := a.demoReport(rows, true); err != nil || !strings.Contains(out.String(), " no\n") || !strings.Contains(errs.String(), "wrong") {
		t.Errorf("%v: %s%s", err, out.String(), errs.String())
	}
}

func demoTestRow(algo string, sent int64, us float64) demoRow {
	return demoRow{&perfResult{Op: "allgather", Algo: algo, Ranks: 8, SentBytes: sent, Time: perfTimes{P50: us}}, true}
}

// The last line says what was measured, whichever is faster.
func TestDemoGain(t *testing.T) {
	for ringTime, want := range map[float64]string{200: "took 2.00 times as long", 50: "was faster here, in 0.50 of the time"} {
		if got := demoGain([]demoRow{demoTestRow("mcast", 1<<20, 100), demoTestRow("ring", 7<<20, ringTime)}); !strings.Contains(got, want) || !strings.Contains(got, "7.00 times as much") {
			t.Error(got)
		}
	}
}
