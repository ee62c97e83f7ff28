package run

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/cmd/allcast/internal/sshlab"
)

// onHosts prepares "allcast run" on the first host of a lab.
func onHosts(t *testing.T, l *sshlab.Lab, flags string, program ...string) *exec.Cmd {
	t.Helper()
	args := append([]string{"run", "--ssh", l.SSH()}, strings.Fields(flags)...)
	return l.Command(t, "host0", append(append(args, "--"), program...)...)
}

// All tests of this file share a lab with sshd on each host.
func TestHosts(t *testing.T) {
	l := sshlab.Start(t, 3)
	t.Run("perf", func(t *testing.T) { testPerf(t, l) })
	t.Run("environment", func(t *testing.T) { testEnvironment(t, l) })
	t.Run("signal", func(t *testing.T) { testSignal(t, l) })
	t.Run("second signal", func(t *testing.T) { testSecondSignal(t, l) })
	t.Run("failure", func(t *testing.T) { testFailure(t, l) })
	t.Run("killed", func(t *testing.T) { testKilled(t, l) })
	t.Run("errors", func(t *testing.T) { testErrors(t, l) })
	t.Run("keep going", func(t *testing.T) { testKeepGoing(t, l) })
}

// Real ranks on two machines multicast to each other, and the result is verified.
func testPerf(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	o := clitest.Finish(t, onHosts(t, l, "--hosts h0:2,h1:2", sshlab.Self(t), "perf", "allgather", "--json", "--algo",
		"mcast", "-b", "64K", "-n", "3", "-w", "0"))
	var result map[string]any
	text, ok := strings.CutPrefix(o.Stdout, "[0] ")
	if err := json.Unmarshal([]byte(text), &result); o.Status != cli.StatusOK || !ok || err != nil {
		t.Fatalf("status %d: %v\n%s%s", o.Status, err, o.Stdout, o.Stderr)
	}
	if result["ranks"] != 4.0 || result["wrong"] != 0.0 || result["algo"] != "mcast" {
		t.Errorf("%v", result)
	}
}

// Ranks have the environment and the working directory of the command, on all machines, and a key that is on no
// command line.
func testEnvironment(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	file := filepath.Join(l.Dir, "hosts")
	if err := os.WriteFile(file, []byte("# a comment\nh0 slots=2\n\nroot@h1:2 # another\nh2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := onHosts(t, l, "-np 4 --hostfile "+file, "sh", "-c", `
		echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $PWD $MASTER_ADDR $QUOTED $(ip -4 -o addr show eth0 | wc -l)"
		echo "key $ALLCAST_KEY $MASTER_PORT" >&2
		echo "$ALLCAST_KEY" | grep -alFf - /proc/[0-9]*/cmdline
		true`)
	cmd.Env = append(cmd.Env, `QUOTED=it's "$HOME" \`, "ALLCAST_KEY=00112233445566778899aabbccddeeff", "RANK=7",
		"WORLD_SIZE=9")
	o := clitest.Finish(t, cmd)
	if o.Status != cli.StatusOK {
		t.Fatalf("status %d\n%s%s", o.Status, o.Stdout, o.Stderr)
	}
	got := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	slices.Sort(got)
	var want []string
	for rank := range 4 {
		want = append(want, fmt.Sprintf(`[%d] %d/4 %d/2 %s %s it's "$HOME" \ %s`, rank, rank, rank%2, l.Dir, l.Addr(0),
			got[0][strings.LastIndex(got[0], " ")+1:]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	keys := map[string]bool{}
	for line := range strings.Lines(o.Stderr) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "key" {
			keys[f[2]+" "+f[3]] = true
			if key, err := hex.DecodeString(f[2]); err != nil || len(key) != 32 {
				t.Errorf("%q", line)
			}
		}
	}
	if len(keys) != 1 {
		t.Errorf("%v\n%s", keys, o.Stderr)
	}
}

// A signal reaches all ranks on all machines, and what they print afterwards arrives.
func testSignal(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	cmd := onHosts(t, l, "--hosts h0:2,h1:1", "sh", "-c",
		`trap 'echo caught; exit 0' TERM; echo ready; while :; do sleep 1000 & wait $!; done`)
	lines := clitest.StartLines(t, cmd)
	for range 3 {
		lines.Until(t, "ready")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		lines.Until(t, "caught")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A second signal ends ranks that ignore the first, and the command has failed.
func testSecondSignal(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	cmd := onHosts(t, l, "--hosts h0:1,h1:1", "sh", "-c", `trap '' INT TERM; `+sleeper)
	lines := clitest.StartLines(t, cmd)
	all := pids(t, lines, 2)
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} { // two of the same kind may arrive as one
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	lines.Rest()
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != cli.StatusFailed {
		t.Errorf("status %d, want %d", cmd.ProcessState.ExitCode(), cli.StatusFailed)
	}
	gone(t, all)
}

// sleeper prints its process id and that of a process outside its group, and sleeps.
const sleeper = `setsid sleep 1000 >/dev/null 2>&1 & echo pids $$ $!; exec sleep 1000`

// pids reads the processes of some sleepers.
func pids(t *testing.T, lines clitest.Lines, ranks int) (all []int) {
	t.Helper()
	for range ranks {
		for f := range strings.FieldsSeq(lines.Next(t, "pids ")) {
			if n, err := strconv.Atoi(f); err == nil {
				all = append(all, n)
			}
		}
	}
	if len(all) != 2*ranks {
		t.Fatalf("%v", all)
	}
	return all
}

// gone waits until processes have ended.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool {
			state, _ := cli.ProcField(fmt.Sprintf("/proc/%d/status", pid), "State")
			return state == "" || state[0] == 'Z'
		})
		if len(left) == 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("processes are left: %v", left)
		}
	}
}

// When a rank fails, all processes on all machines end, also those outside the ranks' groups.
func testFailure(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	cmd := onHosts(t, l, "--hosts h0:2,h1:2", "sh", "-c", `[ $RANK = 3 ] && { read x <fifo; exit 42; }; `+sleeper)
	if err := syscall.Mkfifo(filepath.Join(l.Dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	lines := clitest.StartLines(t, cmd)
	all := pids(t, lines, 3)
	if err := os.WriteFile(filepath.Join(l.Dir, "fifo"), []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	lines.Rest()
	_ = cmd.Wait()
	if s := cmd.ProcessState.ExitCode(); s != 42 || !strings.Contains(stderr.String(), "rank 3 exited with status 42") {
		t.Errorf("status %d\n%s", s, stderr.String())
	}
	gone(t, all)
}

// When the command itself is killed, nothing is left on any machine.
func testKilled(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	cmd := onHosts(t, l, "--hosts h0:1,h1:1", "sh", "-c", sleeper)
	lines := clitest.StartLines(t, cmd)
	all := pids(t, lines, 2)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, all)
}

// A machine that cannot be reached, or cannot run the program, ends the job before any rank starts or goes on.
func testErrors(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	for _, c := range []struct {
		hosts, program string
		status         int
		want           string
	}{
		{"h0,10.0.0.0", "true", cli.StatusFailed, `host 10.0.0.0: ssh failed: check that "ssh 10.0.0.0 true" works`},
		{"h0,h1", "/no/such/program", cli.StatusUsage, "cannot start the program: on h"},
		{"localhost,h1", "true", cli.StatusFailed, "other hosts cannot reach it by that name"},
	} {
		started := filepath.Join(l.Dir, "started")
		cmd := onHosts(t, l, "--hosts "+c.hosts, "sh", "-c", c.program+" && touch "+started)
		if c.program != "true" {
			cmd = onHosts(t, l, "--hosts "+c.hosts, c.program)
		}
		o := clitest.Finish(t, cmd)
		if o.Status != c.status || !strings.Contains(o.Stderr, c.want) {
			t.Errorf("%s: status %d, want %d and %q\n%s", c.hosts, o.Status, c.status, c.want, o.Stderr)
		}
		if _, err := os.Stat(started); err == nil {
			t.Errorf("%s: a rank ran", c.hosts)
		}
	}
}

// With --keep-going, the survivors of a rank on another machine go on.
func testKeepGoing(t *testing.T, l *sshlab.Lab) {
	t.Helper()
	for _, hosts := range []string{"--hosts h0:2,h1:1", "-n 3"} {
		cmd := onHosts(t, l, hosts+" --keep-going", sshlab.Self(t), "shrinker")
		if strings.HasPrefix(hosts, "-n") {
			cmd = clitest.Process(t, append([]string{"run", "-n", "3", "--keep-going", "--"}, sshlab.Self(t), "shrinker")...)
		}
		o := clitest.Finish(t, cmd)
		if o.Status != 7 || strings.Count(o.Stdout, "survived as one of 2") != 2 ||
			!strings.Contains(o.Stderr, "rank 2 exited with status 7: the other ranks go on") {
			t.Errorf("%s: status %d\n%s%s", hosts, o.Status, o.Stdout, o.Stderr)
		}
	}
}
