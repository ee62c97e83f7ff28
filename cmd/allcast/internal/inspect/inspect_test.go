//go:build unix

package inspect

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/aggregate"
	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/testenv"
)

func TestNoRanks(t *testing.T) {
	testenv.SocketDir(t)
	if o := command("inspect"); o.Status != cli.StatusOK || o.Stdout != "" || !strings.Contains(o.Stderr, "no ranks") {
		t.Errorf("%+v", o)
	}
	if o := command("inspect --job cafe"); o.Status != cli.StatusFailed ||
		!strings.Contains(o.Stderr, "no rank of job cafe") {
		t.Errorf("%+v", o)
	}
	if o := command(fmt.Sprintf("inspect %d", os.Getpid())); o.Status != cli.StatusFailed ||
		!strings.Contains(o.Stderr, "is not a rank that can be inspected") {
		t.Errorf("%+v", o)
	}
	if o := command("inspect unix:" + filepath.Join(t.TempDir(), "x")); o.Status != cli.StatusFailed || o.Stdout != "" {
		t.Errorf("%+v", o)
	}
}

// localPort returns a port that is free, as is the next one.
func localPort(t *testing.T) int {
	t.Helper()
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		_ = a.Close()
		if err == nil {
			_ = b.Close()
			return port
		}
	}
	t.Fatal("no two free ports in a row")
	return 0
}

// Inspects a running job. Then one rank is stopped, and the others report that they wait for it.
func TestJob(t *testing.T) {
	testenv.SocketDir(t)
	const size, victim = 2, 1
	port := localPort(t)
	cmd := clitest.Process(t, "perf", "allgather", "--ranks", strconv.Itoa(size), "-b", "64K", "-n", "1000000", "-w", "0")
	cmd.Env = append(cmd.Env, "ALLCAST_TIMEOUT=50s", fmt.Sprintf("ALLCAST_METRICS=127.0.0.1:%d", port))
	lines := clitest.StartLines(t, cmd)
	lines.Until(t, "# allgather") // all have joined
	sockets := observe.Find()
	if len(sockets) != size {
		t.Fatalf("%d ranks, want %d", len(sockets), size)
	}
	for _, s := range sockets {
		t.Cleanup(func() { _ = syscall.Kill(s.Pid, syscall.SIGKILL) })
	}
	pid := sockets[victim].Pid

	list := command("inspect --timeout 30s")
	if list.Status != cli.StatusOK || strings.Count(list.Stdout, sockets[0].Job) != size+1 {
		t.Errorf("list: %+v", list)
	}
	one := command(fmt.Sprintf("inspect %d --timeout 30s --events 5", pid))
	head := fmt.Sprintf("rank %d of %d, process %d", victim, size, pid)
	if one.Status != cli.StatusOK || !strings.Contains(one.Stdout, head) || !strings.Contains(one.Stdout, "last 5 of ") {
		t.Errorf("one: %+v", one)
	}
	// The port number grows with the local rank.
	far := command(fmt.Sprintf("inspect 127.0.0.1:%d --timeout 30s --json --events 1", port+victim))
	if objects := far.Objects(t); far.Status != cli.StatusOK || len(objects) != 2 ||
		objects[0]["rank"] != float64(victim) || objects[0]["job"] != sockets[0].Job {
		t.Errorf("by address: %+v", far)
	}

	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	inspectStopped(t, sockets[0].Job, victim)
	mute := command(fmt.Sprintf("inspect %d --timeout 200ms", pid))
	if mute.Status != cli.StatusFailed || !strings.Contains(mute.Stdout, "does not answer") ||
		!strings.Contains(mute.Stderr, "no answer within 200ms") {
		t.Errorf("stopped: %+v", mute)
	}
}

// inspectStopped asks until the others wait for the stopped rank. Until then they still make progress.
func inspectStopped(t *testing.T, job string, victim int) {
	t.Helper()
	var last string
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		o := command("inspect --json --timeout 500ms --events 1 --job " + job[:6])
		last = o.Stdout
		var silent silentProcess
		var d observe.Diagnosis
		for line := range strings.Lines(o.Stdout) {
			switch {
			case strings.Contains(line, `"diagnosis"`):
				_ = json.Unmarshal([]byte(line), &d)
			case strings.Contains(line, `"error"`):
				_ = json.Unmarshal([]byte(line), &silent)
			}
		}
		if o.Status == cli.StatusOK && silent.Rank == victim && d.Rank == victim &&
			strings.Contains(d.Text, "does not answer") {
			o.Objects(t) // docs/json.md describes all of them
			return
		}
	}
	t.Errorf("no diagnosis says that rank %d does not answer:\n%s", victim, last)
}

// The socket that a killed process left behind is not listed.
func TestIgnoresTheDead(t *testing.T) {
	dir := filepath.Join(testenv.SocketDir(t), fmt.Sprintf("allcast-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Skip(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%d-cafe-0.sock", gone.Process.Pid))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if o := command("inspect"); o.Status != cli.StatusOK || o.Stdout != "" {
		t.Errorf("%+v", o)
	}
}

func TestWords(t *testing.T) {
	peer, culprit := 3, 4
	v := &observe.View{State: &observe.State{
		Rank: 1, Size: 5, Answers: true, Multicast: "turned off", Metrics: "127.0.0.1:1", Recorded: 9,
		Comms: []observe.Comm{{
			Name: "world", Broken: "lost", Culprit: &culprit,
			Ops: []observe.Op{{Op: "barrier", WaitsOn: 1}},
		}},
		Peers: []observe.Peer{{Rank: 3, Heard: true, Silent: 2}, {Rank: 4, Lost: true}},
		Events: []observe.Record{
			{What: "received", How: "grant", Peer: &peer, Times: 7, N: 2},
			{What: "begun", How: "barrier", Text: "ring"},
		},
	}}
	text := describe(v)
	for _, want := range []string{
		"no multicast: turned off", "metrics at 127.0.0.1:1", "broken: lost: rank 4", "waits for nobody",
		"heard from rank 3 2.0s ago", "rank 4 is lost",
		"last 2 of 9 events", "received grant rank 3", "(7 times)", "begun barrier (ring)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing of %q in\n%s", want, text)
		}
	}
	v.State.Answers = false
	if text := describe(v); !strings.Contains(text, "control side is stuck") || silent([]observe.View{*v}) == nil {
		t.Error(text)
	}
}

// Texts of other machines reach the terminal without control characters.
func TestSafe(t *testing.T) {
	bad := "a\x1b[2Jb"
	s := &aggregate.State{Addr: bad, Parent: bad, Jobs: []aggregate.JobState{{Job: bad, Why: bad}}}
	got := safe(s)
	if want := "a?[2Jb"; got.Addr != want || got.Parent != want || got.Jobs[0].Job != want || got.Jobs[0].Why != want {
		t.Errorf("%+v", got)
	}
	if s.Jobs[0].Job != bad {
		t.Error("the state itself has changed")
	}
}
