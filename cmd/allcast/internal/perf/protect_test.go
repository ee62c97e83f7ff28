package perf

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// With protection the data is right, and the output names the protection.
func TestProtected(t *testing.T) {
	for _, flags := range []string{"--secure", "--integrity", "--secure --integrity"} {
		lines := clitest.JSON(t, "perf allgather --ranks 3 --algo mcast,ring -b 100K -n 2 --json "+flags)
		for _, l := range lines {
			if l["wrong"] != 0. || l["secure"] != strings.Contains(flags, "secure") ||
				l["integrity"] != strings.Contains(flags, "integrity") || l["corrupt_chunks"] != 0. {
				t.Errorf("%s: %v", flags, l)
			}
		}
	}
	l := clitest.JSON(t, "perf broadcast --ranks 2 --algo mcast -b 100K -n 1 --json", "ALLCAST_SECURE=on")[0]
	if l["secure"] != true || l["wrong"] != 0. {
		t.Errorf("%v", l)
	}
}

// With checks, damaged datagrams are detected and repaired. Without checks, the data is wrong.
func TestCorrupt(t *testing.T) {
	const cmd, fault = "perf allgather --ranks 3 --algo mcast -b 1M -n 2 --json", "ALLCAST_FAULT=corrupt=1%,seed=3"
	for _, flag := range []string{" --integrity", " --secure"} {
		l := clitest.JSON(t, cmd+flag, fault)[0]
		if l["wrong"] != 0. || l["corrupt_chunks"].(float64) <= 0 || l["repaired_bytes"].(float64) <= 0 {
			t.Errorf("%s: %v", flag, l)
		}
	}
	p := clitest.Process(t, strings.Fields(cmd)...)
	p.Env = append(p.Env, fault)
	if o := clitest.Finish(t, p); o.Status != cli.StatusWrong || o.Objects(t)[0]["wrong"].(float64) <= 0 {
		t.Errorf("status %d without checks, want %d\n%s%s", o.Status, cli.StatusWrong, o.Stdout, o.Stderr)
	}
}
