//go:build unix

package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
)

func TestForwardsSignals(t *testing.T) {
	cmd := clitest.Process(t, "run", "-n", "2", "--", "sh", "-c",
		`trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 1000 & wait $!; done`)
	lines := clitest.StartLines(t, cmd)
	for range 2 {
		lines.Until(t, "ready")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		lines.Until(t, "caught")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Processes that left the process group of a rank are ended too.
func TestLeavesNothing(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux, and setsid of util-linux")
	}
	file := filepath.Join(t.TempDir(), "pid")
	// The program ends when the other one has its own session.
	o := clitest.Finish(t, clitest.Process(t, "run", "-n", "1", "--", "sh", "-c",
		`mkfifo $0.up; setsid sh -c 'echo $$ >$0; echo up >$0.up; exec sleep 1000' $0 >/dev/null 2>&1 & read x <$0.up`, file))
	text, err := os.ReadFile(file)
	if err != nil || o.Status != cli.StatusOK {
		t.Fatalf("status %d: %v\n%s", o.Status, err, o.Stderr)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(pid, 0) == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Errorf("process %d is still there", pid)
	}
}

// When a rank is killed, the others name it, and all ranks and the command end.
func TestKilledRank(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finds the ranks in /proc")
	}
	cmd := clitest.Process(t, "perf", "allgather", "--ranks", "4", "-b", "64K", "-n", "1000000", "-w", "0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	lines := clitest.StartLines(t, cmd)
	lines.Until(t, "# allgather")
	ranks := clitest.Children(t, cmd.Process.Pid)
	if len(ranks) != 4 {
		t.Fatalf("%d ranks", len(ranks))
	}
	if err := syscall.Kill(ranks[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != cli.StatusFailed {
		t.Errorf("status %d, want %d", got, cli.StatusFailed)
	}
	text := stderr.String()
	var dead int
	if _, err := fmt.Sscanf(text[strings.Index(text, "allcast: rank ")+1:], "llcast: rank %d was ended",
		&dead); err != nil {
		t.Fatalf("no message names the killed rank: %v\n%s", err, text)
	}
	for r := range 4 {
		want := r != dead
		if got := strings.Contains(text, fmt.Sprintf("[%d] allcast: allgather of 65536 bytes by auto", r)); got != want {
			t.Errorf("rank %d has said something: %v, want %v", r, got, want)
		}
	}
	if n := strings.Count(text, fmt.Sprintf("rank %d; missing here", dead)); n != 3 {
		t.Errorf("%d survivors name rank %d\n%s", n, dead, text)
	}
	for _, pid := range ranks {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("process %d is still there", pid)
		}
	}
}
