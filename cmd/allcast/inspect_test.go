//go:build unix

package main

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

	"github.com/allcast/allcast/internal/observe"
	"github.com/allcast/allcast/internal/testenv"
)

func TestInspectNobody(t *testing.T) {
	testenv.SocketDir(t)
	if o := command("inspect"); o.status != statusOK || o.stdout != "" || !strings.Contains(o.stderr, "no ranks") {
		t.Errorf("%+v", o)
	}
	if o := command("inspect --job cafe"); o.status != statusFailed || !strings.Contains(o.stderr, "no rank of job cafe") {
		t.Errorf("%+v", o)
	}
	if o := command(fmt.Sprintf("inspect %d", os.Getpid())); o.status != statusFailed || !strings.Contains(o.stderr, "is not a rank that can be inspected") {
		t.Errorf("%+v", o)
	}
	if o := command("inspect unix:" + filepath.Join(t.TempDir(), "x")); o.status != statusFailed || o.stdout != "" {
		t.Errorf("%+v", o)
	}
}

// localPort is one that nobody listens on, nor on the next.
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

// A job runs; then one of its ranks is stopped, which the others tell of.
func TestInspectJob(t *testing.T) {
	testenv.SocketDir(t)
	const size, victim = 2, 1
	port := localPort(t)
	cmd := process(t, "perf", "allgather", "--ranks", strconv.Itoa(size), "-b", "64K", "-n", "1000000", "-w", "0")
	cmd.Env = append(cmd.Env, "ALLCAST_TIMEOUT=50s", fmt.Sprintf("ALLCAST_METRICS=127.0.0.1:%d", port))
	lines := startLines(t, cmd)
	lines.until(t, "# allgather") // all have joined
	sockets := observe.Find()
	if len(sockets) != size {
		t.Fatalf("%d ranks, want %d", len(sockets), size)
	}
	for _, s := range sockets {
		t.Cleanup(func() { _ = syscall.Kill(s.Pid, syscall.SIGKILL) })
	}
	pid := sockets[victim].Pid

	list := command("inspect")
	if list.status != statusOK || strings.Count(list.stdout, sockets[0].Job) != size+1 {
		t.Errorf("list: %+v", list)
	}
	one := command(fmt.Sprintf("inspect %d --events 5", pid))
	if one.status != statusOK || !strings.Contains(one.stdout, fmt.Sprintf("rank %d of %d, process %d", victim, size, pid)) || !strings.Contains(one.stdout, "last 5 of ") {
		t.Errorf("one: %+v", one)
	}
	// Ports are counted by local rank.
	far := command(fmt.Sprintf("inspect 127.0.0.1:%d --json --events 1", port+victim))
	if objects := far.objects(t); far.status != statusOK || len(objects) != 2 || objects[0]["rank"] != float64(victim) || objects[0]["job"] != sockets[0].Job {
		t.Errorf("by address: %+v", far)
	}

	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	inspectStopped(t, sockets[0].Job, victim)
	mute := command(fmt.Sprintf("inspect %d --timeout 200ms", pid))
	if mute.status != statusFailed || !strings.Contains(mute.stdout, "does not answer") || !strings.Contains(mute.stderr, "no answer within 200ms") {
		t.Errorf("stopped: %+v", mute)
	}
}

// inspectStopped asks until the others need the rank that was stopped: until then
// they go on.
func inspectStopped(t *testing.T, job string, victim int) {
	t.Helper()
	var last string
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); {
		o := command("inspect --json --timeout 500ms --events 1 --job " + job[:6])
		last = o.stdout
		var silent inspectSilent
		var d observe.Diagnosis
		for line := range strings.Lines(o.stdout) {
			switch {
			case strings.Contains(line, `"diagnosis"`):
				_ = json.Unmarshal([]byte(line), &d)
			case strings.Contains(line, `"error"`):
				_ = json.Unmarshal([]byte(line), &silent)
			}
		}
		if o.status == statusOK && silent.Rank == victim && d.Rank == victim && strings.Contains(d.Text, "does not answer") {
			return
		}
	}
	t.Errorf("nobody names rank %d:\n%s", victim, last)
}

// What is left of a process that was killed is not listed.
func TestInspectIgnoresTheDead(t *testing.T) {
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
	if o := command("inspect"); o.status != statusOK || o.stdout != "" {
		t.Errorf("%+v", o)
	}
}

func TestInspectUsage(t *testing.T) {
	for args, want := range map[string]string{
		"inspect nonsense":      "HOST:PORT",
		"inspect host:0":        "HOST:PORT",
		"inspect unix:":         "HOST:PORT",
		"inspect 1 2":           "takes one process",
		"inspect 1 --job x":     "want one of them",
		"inspect --events 5000": "0 to 1024",
		"inspect --timeout 0s":  "more than 0",
		"inspect --frobnicate":  "--events",
	} {
		o := command(args)
		if o.status != statusUsage || !strings.Contains(o.stderr, want) || o.stdout != "" {
			t.Errorf("allcast %s: %+v", args, o)
		}
	}
	if o := command("inspect --help"); o.status != statusOK || !strings.Contains(o.stdout, "    allcast inspect") {
		t.Errorf("%+v", o)
	}
}

func TestInspectWords(t *testing.T) {
	peer, culprit := 3, 4
	v := &observe.View{State: &observe.State{
		Rank: 1, Size: 5, Answers: true, Multicast: "turned off", Metrics: "127.0.0.1:1", Recorded: 9,
		Comms: []observe.Comm{{Name: "world", Broken: "lost", Culprit: &culprit, Ops: []observe.Op{{Op: "barrier", WaitsOn: 1}}}},
		Peers: []observe.Peer{{Rank: 3, Heard: true, Silent: 2}, {Rank: 4, Lost: true}},
		Events: []observe.Record{
			{What: "received", How: "grant", Peer: &peer, Times: 7, N: 2},
			{What: "begun", How: "barrier", Text: "ring"},
		},
	}}
	text := describe(v)
	for _, want := range []string{
		"no multicast: turned off", "metrics at 127.0.0.1:1", "broken: lost: rank 4", "waits for nobody", "heard from rank 3 2.0s ago", "rank 4 is lost",
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
