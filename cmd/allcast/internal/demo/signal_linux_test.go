package demo

import (
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

// An interrupted demo says so, and no rank complains about the others.
func TestInterrupted(t *testing.T) {
	cmd := clitest.Process(t, "demo", "--ranks", "4", "--json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	lines := clitest.StartLines(t, cmd)
	lines.Until(t, `"algo":"binomial"`)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	lines.Rest()
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 130 {
		t.Errorf("status %d, want 130", status)
	}
	if got, want := stderr.String(), "allcast: interrupted\n"; got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}
}
