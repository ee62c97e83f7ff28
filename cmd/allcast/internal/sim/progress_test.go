package sim

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/sim"
)

// A line appears after a while, is replaced at most four times per second, and leaves nothing behind.
func TestProgressLine(t *testing.T) {
	var out strings.Builder
	start := time.Unix(1000, 0)
	p := &progressLine{out: &out, name: "allgather (mcast)", start: start, dueAt: start.Add(progressDelay)}
	p.clear()
	at := func(after time.Duration, s sim.Progress) string {
		t.Helper()
		out.Reset()
		p.update(start.Add(after), s)
		return out.String()
	}
	quarter := sim.Progress{Time: 1500 * time.Microsecond, Share: 0.25}
	if got := at(999*time.Millisecond, quarter); got != "" {
		t.Errorf("before the delay: %q", got)
	}
	want := clearLine + "allgather (mcast): 25 %, 1.5ms simulated, about 3s left"
	if got := at(time.Second, quarter); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := at(1200*time.Millisecond, quarter); got != "" {
		t.Errorf("after 200 ms: %q", got)
	}
	want = clearLine + "allgather (mcast): 100 %, 6ms simulated"
	if got := at(2*time.Second, sim.Progress{Time: 6 * time.Millisecond, Share: 1}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	out.Reset()
	if p.clear(); out.String() != clearLine {
		t.Errorf("left %q on the terminal", out.String())
	}
}

// Only people at a terminal see progress: not --json, and not a file or a pipe.
func TestProgressIsForTerminals(t *testing.T) {
	for _, c := range []struct {
		args     string
		terminal bool
		want     bool
	}{
		{"", true, true},
		{"", false, false},
		{" --json", true, false},
	} {
		shown := false
		all := &table{Sim: Command{
			simulate: func(cfg sim.Config) (*sim.Result, error) {
				shown = cfg.Progress != nil
				return fine(cfg)
			},
			isTerminal: func(io.Writer) bool { return c.terminal },
		}}
		o := clitest.Run(all, strings.Fields("sim broadcast --topology star:3"+c.args)...)
		if o.Status != cli.StatusOK || shown != c.want || o.Stderr != "" {
			t.Errorf("%q on a terminal %v: shown %v, status %d, stderr %q", c.args, c.terminal, shown, o.Status, o.Stderr)
		}
	}
	if cli.IsTerminal(&strings.Builder{}) {
		t.Error("a buffer is no terminal")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if cli.IsTerminal(f) {
		t.Error("a file is no terminal")
	}
}
