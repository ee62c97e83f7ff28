//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestRunPrefixes(t *testing.T) {
	o := finish(t, process(t, "run", "-n", "3", "--", "sh", "-c", `echo "out $RANK/$WORLD_SIZE"; printf err >&2`))
	out, errs := strings.Split(o.stdout, "\n"), strings.Split(o.stderr, "\n")
	slices.Sort(out)
	slices.Sort(errs)
	if got := strings.Join(out, ";"); o.status != statusOK || got != ";[0] out 0/3;[1] out 1/3;[2] out 2/3" {
		t.Errorf("status %d, stdout %q", o.status, got)
	}
	if got := strings.Join(errs, ";"); got != ";[0] err;[1] err;[2] err" {
		t.Errorf("stderr %q", got)
	}
}

// The program's own flags are its own, with -- before it or not.
func TestRunArguments(t *testing.T) {
	for _, dashes := range [][]string{{"--"}, nil} {
		args := append(append([]string{"run", "-n", "1"}, dashes...), "echo", "-n", "4", "--json", "--", "x")
		if o := finish(t, process(t, args...)); o.status != statusOK || o.stdout != "[0] 4 --json -- x\n" {
			t.Errorf("%v: status %d, %q", args, o.status, o.stdout)
		}
	}
}

func TestRunStatus(t *testing.T) {
	for _, c := range []struct {
		script string
		status int
		says   string
	}{
		{"exit 0", statusOK, ""},
		{"[ $RANK = 0 ] || exit 3", statusWrong, "rank 1 exited with status 3"},
		{"[ $RANK = 0 ] || exit 42", 42, "rank 1 exited with status 42"},
		{"[ $RANK = 0 ] || kill -9 $$; exec sleep 1000", statusFailed, "rank 1 was ended by a signal: killed"},
	} {
		o := finish(t, process(t, "run", "-n", "2", "--", "sh", "-c", c.script))
		if o.status != c.status || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%s: status %d, %q", c.script, o.status, o.stderr)
		}
	}
}

func TestRunForwardsSignals(t *testing.T) {
	cmd := process(t, "run", "-n", "2", "--", "sh", "-c", `trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 1000 & wait $!; done`)
	lines := startLines(t, cmd)
	for range 2 {
		lines.until(t, "ready")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		lines.until(t, "caught")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// Also what has left its process group is ended.
func TestRunLeavesNothing(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil || runtime.GOOS != "linux" {
		t.Skip("needs Linux, and setsid of util-linux")
	}
	file := filepath.Join(t.TempDir(), "pid")
	// The program ends when the other one is in a session of its own.
	o := finish(t, process(t, "run", "-n", "1", "--", "sh", "-c",
		`mkfifo $0.up; setsid sh -c 'echo $$ >$0; echo up >$0.up; exec sleep 1000' $0 >/dev/null 2>&1 & read x <$0.up`, file))
	text, err := os.ReadFile(file)
	if err != nil || o.status != statusOK {
		t.Fatalf("status %d: %v\n%s", o.status, err, o.stderr)
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

// A rank that is killed in the middle: the others name it, all end, and so does the
// command.
func TestKilledRank(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finds the ranks in /proc")
	}
	cmd := process(t, "perf", "allgather", "--ranks", "4", "-b", "64K", "-n", "1000000", "-w", "0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	lines := startLines(t, cmd)
	lines.until(t, "# allgather")
	ranks := childrenOf(t, cmd.Process.Pid)
	if len(ranks) != 4 {
		t.Fatalf("%d ranks", len(ranks))
	}
	if err := syscall.Kill(ranks[2], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != statusFailed {
		t.Errorf("status %d, want %d", got, statusFailed)
	}
	text := stderr.String()
	var dead int
	if _, err := fmt.Sscanf(text[strings.Index(text, "allcast: rank ")+1:], "llcast: rank %d was ended", &dead); err != nil {
		t.Fatalf("nobody says which rank was killed: %v\n%s", err, text)
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

// lineReader reads a process's standard output.
type lineReader struct{ s *bufio.Scanner }

// startLines starts a process; whatever happens, it ends with the test.
func startLines(t *testing.T, cmd *exec.Cmd) lineReader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	guard := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { guard.Stop(); _ = cmd.Process.Kill(); _, _ = io.Copy(io.Discard, out) })
	return lineReader{bufio.NewScanner(out)}
}

func (l lineReader) until(t *testing.T, text string) {
	t.Helper()
	for l.s.Scan() {
		if strings.Contains(l.s.Text(), text) {
			return
		}
	}
	t.Fatalf("it ended without %q: %v", text, l.s.Err())
}

// childrenOf lists a process's children.
func childrenOf(t *testing.T, pid int) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for _, f := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, n)
		}
	}
	return pids
}
