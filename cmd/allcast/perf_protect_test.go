package main

import (
	"strings"
	"testing"
)

// Sealed and checked, everything is as it was, and the output says so.
func TestPerfProtected(t *testing.T) {
	for _, flags := range []string{"--secure", "--integrity", "--secure --integrity"} {
		lines := jsonOf(t, "perf allgather --ranks 3 --algo mcast,ring -b 100K -n 2 --json "+flags)
		for _, l := range lines {
			if l["wrong"] != 0. || l["secure"] != strings.Contains(flags, "secure") || l["integrity"] != strings.Contains(flags, "integrity") || l["corrupt_chunks"] != 0. {
				t.Errorf("%s: %v", flags, l)
			}
		}
	}
	l := jsonOf(t, "perf broadcast --ranks 2 --algo mcast -b 100K -n 1 --json", "ALLCAST_SECURE=on")[0]
	if l["secure"] != true || l["wrong"] != 0. {
		t.Errorf("%v", l)
	}
}

// Damaged datagrams are found and repaired with checks, and make wrong data without.
func TestPerfCorrupt(t *testing.T) {
	const cmd, fault = "perf allgather --ranks 3 --algo mcast -b 1M -n 2 --json", "ALLCAST_FAULT=corrupt=1%,seed=3"
	for _, flag := range []string{" --integrity", " --secure"} {
		l := jsonOf(t, cmd+flag, fault)[0]
		if l["wrong"] != 0. || l["corrupt_chunks"].(float64) <= 0 || l["repaired_bytes"].(float64) <= 0 {
			t.Errorf("%s: %v", flag, l)
		}
	}
	p := process(t, fields(cmd)...)
	p.Env = append(p.Env, fault)
	if o := finish(t, p); o.status != statusWrong || o.objects(t)[0]["wrong"].(float64) <= 0 {
		t.Errorf("status %d without checks, want %d\n%s%s", o.status, statusWrong, o.stdout, o.stderr)
	}
}

// Without a key there is nothing to seal with, and whoever started us can mend that.
func TestPerfSecureNeedsKey(t *testing.T) {
	p := process(t, fields("perf barrier --secure -n 1")...)
	p.Env = append(p.Env, "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1")
	if o := finish(t, p); o.status != statusUsage || !strings.Contains(o.stderr, "ALLCAST_KEY") {
		t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
	}
}
