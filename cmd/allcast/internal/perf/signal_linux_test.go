package perf

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// A signal ends the job with what it has so far, with the status of the signal, and leaves no rank behind.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		flag   string
		first  string // start of the first row
		status int
	}{
		{syscall.SIGINT, "", "         64 ", 130},
		{syscall.SIGTERM, " --json", `{"op":"allgather"`, 143},
	} {
		raw := filepath.Join(t.TempDir(), "raw.csv")
		// The second size would take minutes.
		cmd := clitest.Process(t, strings.Fields("perf allgather --ranks 3 --algo ring -b 64 -e 32M -f 524288 -n 500 -w 0 "+
			"-c 0 --raw "+raw+c.flag)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		lines := clitest.StartLines(t, cmd)
		lines.Until(t, c.first)
		ranks := clitest.Children(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		rest := lines.Rest()
		_ = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status != c.status {
			t.Errorf("%v: status %d, want %d\n%s", c.signal, status, c.status, stderr.String())
		}
		if average := strings.HasPrefix(rest, "# Average bus bandwidth: ring "); average != (c.flag == "") {
			t.Errorf("%v: the output ends with %q", c.signal, rest)
		}
		if got := stderr.String(); !strings.Contains(got, "[0] allcast: interrupted\n") {
			t.Errorf("%v: %s", c.signal, got)
		}
		if n := len(rawLines(t, raw)); n != 3*500 {
			t.Errorf("%v: %d raw times, want those of the first size", c.signal, n)
		}
		if files, err := os.ReadDir(filepath.Dir(raw)); err != nil || len(files) != 1 {
			t.Errorf("%v left behind: %v", files, err)
		}
		for _, pid := range ranks {
			if syscall.Kill(pid, 0) == nil {
				t.Errorf("%v: process %d is still running", c.signal, pid)
			}
		}
		if len(ranks) != 3 {
			t.Errorf("%d ranks", len(ranks))
		}
	}
}
