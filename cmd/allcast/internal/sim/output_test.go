package sim

import (
	"strings"
	"testing"
)

// A field that does not apply to an algorithm has no number.
func TestDashes(t *testing.T) {
	rows := func(args string) map[string][]string {
		rows := map[string][]string{}
		for line := range strings.Lines(command("sim " + args).Stdout) {
			if f := strings.Fields(line); len(f) > 1 {
				rows[f[0]] = f[1:]
			}
		}
		return rows
	}
	all := rows("allgather --topology star:4 --algo mcast,ring")
	for name, want := range map[string]string{
		"chains": "1 -", "subgroups": "1 -", "handshake_us": "1.01 -", "fetch_us": "0.00 -", "dropped_chunks": "0 -",
		"repaired_chunks": "0 -", "recovery_us": "1.01 -", "background_bytes": "- -", "max_crossings": "1 1",
		"wrong": "0 0",
	} {
		if got := strings.Join(all[name][:2], " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := all["transfer_us"][0]; got != "-" {
		t.Errorf("transfer_us of mcast: %s, want -", got)
	}
	if got := rows("barrier --topology star:4")["bytes"][0]; got != "-" {
		t.Errorf("bytes of a barrier: %s, want -", got)
	}
	if got := rows("allgather+reduce-scatter --topology star:4")["max_crossings"][0]; got != "-" {
		t.Errorf("max_crossings of two collectives: %s, want -", got)
	}
	if got := rows("reduce-scatter --topology star:4 --algo inc")["repaired_chunks"][0]; got != "0" {
		t.Errorf("repaired_chunks of inc: %s, want 0", got)
	}
}
