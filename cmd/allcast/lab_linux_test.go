package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/report"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/topology"
)

// labProcess prepares a command of the lab, for a lab of this test's own.
func labProcess(t *testing.T, sub, args string, command ...string) *exec.Cmd {
	t.Helper()
	if _, err := lab.Attach("nosuch"); os.Geteuid() != 0 || labError(err) != err {
		t.Skipf("no lab here: %v", err)
	}
	list := append([]string{"lab", sub, "--name", labTestName(t)}, fields(args)...)
	if len(command) > 0 {
		list = append(append(list, "--"), command...)
	}
	cmd := process(t, list...)
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	return cmd
}

func labTestName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("c%dx%d", os.Getpid(), len(t.Name()))
}

// labLeft lists what is left of the test's lab.
func labLeft(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{"/run/netns/%s-*", "/run/allcast-lab-%s.*"} {
		found, _ := filepath.Glob(fmt.Sprintf(pattern, labTestName(t)))
		left = append(left, found...)
	}
	// Processes by their arguments; a zombie has none.
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range procs {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "\x00"+labTestName(t)+"\x00") {
			left = append(left, path)
		}
	}
	return left
}

func labLeftNothing(t *testing.T) {
	t.Helper()
	if left := labLeft(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// labResult runs a job and returns what it printed, and the counters.
func labResult(t *testing.T, args string, command ...string) (perf map[string]any, c lab.Counters) {
	t.Helper()
	o := finish(t, labProcess(t, "run", args+" --json", append([]string{"allcast"}, command...)...))
	labLeftNothing(t)
	lines := strings.Split(strings.TrimSpace(o.stdout), "\n")
	if o.status != statusOK || len(lines) != 2 {
		t.Fatalf("status %d\n%s\n%s", o.status, o.stdout, o.stderr)
	}
	if err := json.Unmarshal([]byte(lines[0]), &perf); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(lines[1]), &c); err != nil {
		t.Fatal(err)
	}
	return perf, c
}

// The main point, on real ports: over multicast, all links together carry hardly more
// than the payload on a minimal tree; over the ring, 1.5 to 2.1 times as much.
func TestLabTraffic(t *testing.T) {
	const spec, bytes, iters = "fat-tree:16,4,2", 65536, 10
	perf, mcast := labResult(t, "--topology "+spec, "perf", "allgather", "--json", "--algo", "mcast", "-b", "64K", "-e", "64K", "-n", "10", "-w", "0")
	if perf["algo"] != "mcast" || perf["wrong"] != 0.0 {
		t.Fatalf("%v", perf)
	}
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	minimal := float64(g.TreeTraversals() * bytes * iters)
	// Ranks that join try multicast out, the longer the busier the machine is. What hosts
	// have sent beyond the operations is that, and it went along the tree too.
	probes := -float64(g.Hosts) * iters * perf["mcast_bytes"].(float64)
	for _, p := range mcast.Ports {
		if strings.HasPrefix(p.Port, "host") {
			probes += float64(p.McastRx)
		}
	}
	probes *= float64(g.Tree(0).Links(0))
	t.Logf("mcast: %d bytes on all links, %.4f of the minimal tree's payload, of which probes %.4f", mcast.LinkBytes, float64(mcast.LinkBytes)/minimal, probes/minimal)
	if r := (float64(mcast.LinkBytes) - probes) / minimal; probes < 0 || r < 1 || r > 1.06 {
		t.Errorf("mcast: %.4f times the minimal tree's payload, want 1 to 1.06", r)
	}
	// Our header of 16 bytes is all that a datagram contains besides the payload.
	if r := (float64(mcast.McastLinkBytes) - probes) / minimal; r < 1 || r > 1.003 {
		t.Errorf("mcast: contents of datagrams are %.4f times the minimal tree's payload", r)
	}
	if perf["repaired_bytes"] == 0.0 {
		labTree(t, g, mcast.Ports)
		labSimulator(t, g, bytes, iters, perf["mcast_bytes"].(float64), mcast.Ports)
	}
	if mcast.Topology != spec || mcast.Hosts != 16 || mcast.Switches != 6 || len(mcast.Ports) != 4*6+2*4 {
		t.Errorf("%+v", mcast)
	}
	perf, ring := labResult(t, "--topology "+spec, "perf", "allgather", "--json", "--algo", "ring", "-b", "64K", "-e", "64K", "-n", "10", "-w", "0")
	if perf["algo"] != "ring" || perf["wrong"] != 0.0 {
		t.Fatalf("%v", perf)
	}
	if r := float64(ring.LinkBytes-ring.McastLinkBytes) / (float64(mcast.LinkBytes) - probes); r < 1.5 || r > 2.1 {
		t.Errorf("the ring puts %.2f times as many bytes on the links, want 1.5 to 2.1", r)
	}
}

// labSimulator compares every link direction with a simulated run of the same: the
// same payload of multicast, once what ranks tried out when they joined, and headers, are
// taken off.
func labSimulator(t *testing.T, g *topology.Graph, bytes, iters int64, sent float64, ports []lab.Counting) {
	t.Helper()
	r, err := sim.Run(sim.Config{
		Op: "allgather", Algo: "mcast", Topology: g, Bytes: bytes, Chains: 1, Subgroups: 1, ChainBy: "rank", Chunk: 8956,
		Rate: 10e9, Latency: time.Microsecond, Flow: "none", Timeout: 10 * time.Second, Seed: 1,
	})
	if err != nil || !r.Verified {
		t.Fatalf("simulated: %v, %+v", err, r)
	}
	var all []report.Port
	for _, p := range ports {
		all = append(all, report.Port{Switch: p.Switch, Port: p.Port, Rx: p.McastRx, Tx: p.McastTx})
	}
	counted, err := report.FromPorts(g, all)
	if err != nil {
		t.Fatal(err)
	}
	// What each host sent beyond the operations is on each direction of its tree.
	probes := make([]float64, len(g.Links))
	for h := range g.Hosts {
		extra := float64(counted[g.HostUp(h)]) - float64(iters)*sent
		for _, l := range crossed(g, g.HostUp(h)) {
			probes[l] += extra
		}
	}
	for l := range g.Links {
		got := (float64(counted[l]) - probes[l]) / sent * float64(bytes)
		want := float64(r.PayloadByLink[l]) * float64(iters)
		if math.Abs(got-want) > 0.5 {
			t.Errorf("%s to %s: %.0f bytes of multicast payload, simulated %.0f", g.NodeName(g.Links[l].From), g.NodeName(g.Links[l].To), got, want)
		}
	}
}

// crossed is what a datagram of the first tree crosses from a link direction on, that
// one included.
func crossed(g *topology.Graph, in topology.LinkID) []topology.LinkID {
	all := []topology.LinkID{in}
	for _, l := range g.Tree(0).Ports[g.Links[in].To] {
		if l != g.Reverse(in) {
			all = append(all, crossed(g, l)...)
		}
	}
	return all
}

// labTree checks every port, to the byte: what a host has sent is on each link direction
// of its tree, which goes over spine 0, and on no other.
func labTree(t *testing.T, g *topology.Graph, ports []lab.Counting) {
	t.Helper()
	sent, all, rack := map[string]uint64{}, uint64(0), map[string]uint64{}
	for _, p := range ports {
		if strings.HasPrefix(p.Port, "host") {
			sent[p.Port] = p.McastRx
			rack[p.Switch] += p.McastRx
			all += p.McastRx
		}
	}
	for _, p := range ports {
		var rx, tx uint64
		switch {
		case strings.HasPrefix(p.Port, "host"):
			rx, tx = sent[p.Port], all-sent[p.Port]
		case p.Port == "spine0":
			rx, tx = all-rack[p.Switch], rack[p.Switch]
		case p.Switch == "spine0":
			rx, tx = rack[p.Port], all-rack[p.Port]
		}
		if p.McastRx != rx || p.McastTx != tx {
			t.Errorf("%s of %s: %d and %d bytes of multicast in and out, want %d and %d", p.Port, p.Switch, p.McastRx, p.McastTx, rx, tx)
		}
	}
	if len(sent) != g.Hosts {
		t.Errorf("%d ports of hosts, want %d", len(sent), g.Hosts)
	}
}

// Subgroups have trees of their own, through spines of their own.
func TestLabSubgroups(t *testing.T) {
	perf, c := labResult(t, "--topology fat-tree:4,2,2 --groups 2", "perf", "broadcast", "--json", "--algo", "mcast", "-b", "1M", "-n", "1", "-w", "0", "--subgroups", "2")
	if perf["subgroups"] != 2.0 || perf["wrong"] != 0.0 {
		t.Fatalf("%v", perf)
	}
	for _, p := range c.Ports {
		if p.Switch == "leaf0" && strings.HasPrefix(p.Port, "spine") && (p.McastTx < 512<<10 || p.McastTx > 700<<10) {
			t.Errorf("%d bytes of multicast to %s, want half a MiB and some", p.McastTx, p.Port)
		}
	}
	o := finish(t, labProcess(t, "run", "--topology star:2 --groups 1", "allcast", "perf", "broadcast", "--algo", "mcast", "-b", "1M", "--subgroups", "2"))
	if o.status == statusOK || !strings.Contains(o.stderr, "2 subgroups, and only 1 multicast groups") {
		t.Errorf("status %d\n%s", o.status, o.stderr)
	}
}

// What is lost is repaired, and single datagrams are lost: about as many as asked for.
func TestLabLoss(t *testing.T) {
	perf, c := labResult(t, "--topology star:4 --loss 2% --duplicate 2% --rate 500mbit", "perf", "broadcast", "--json", "--algo", "mcast", "-b", "4M", "-n", "3", "-w", "0")
	if perf["wrong"] != 0.0 || perf["repaired_bytes"] == 0.0 || perf["duplicate_chunks"] == 0.0 {
		t.Errorf("%v", perf)
	}
	chunks := perf["chunks_total"].(float64)
	if r := float64(c.Lost) / chunks; r < 0.01 || r > 0.035 {
		t.Errorf("%d of %v datagrams lost, want about 2 %%", c.Lost, chunks)
	}
	if perf, c = labResult(t, "--topology star:4 --loss-all 1% --rate 500mbit", "perf", "broadcast", "--json", "--algo", "binomial", "-b", "1M", "-n", "2", "-w", "0"); perf["wrong"] != 0.0 || c.Lost == 0 {
		t.Errorf("%d packets lost: %v", c.Lost, perf)
	}
}

// started waits until the job's ranks run.
func labStarted(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if n, _ := filepath.Glob(cmd.Dir + "/rank*"); len(n) == 4 {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("the ranks do not start")
		}
	}
}

// labSleep is a job whose ranks leave a process behind that has left their group.
var labSleep = []string{"sh", "-c", "setsid sleep 300 & touch rank$RANK; exec sleep 300"}

func TestLabSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := labProcess(t, "run", "--topology fat-tree:4,2,2", labSleep...)
		cmd.Dir = t.TempDir()
		labStarted(t, cmd)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if s := cmd.ProcessState.ExitCode(); s != statusFailed {
			t.Errorf("%v: status %d", sig, s)
		}
		labLeftNothing(t)
	}
}

// What kill -9 leaves behind, "lab down" removes.
func TestLabKilled(t *testing.T) {
	cmd := labProcess(t, "run", "--topology fat-tree:4,2,2", labSleep...)
	cmd.Dir = t.TempDir()
	labStarted(t, cmd)
	inside, _ := os.ReadDir("/run/netns")
	if len(inside) == 0 {
		t.Error("no namespaces")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(labLeft(t)) == 0 {
		t.Error("nothing is left: what is this test for?")
	}
	if o := finish(t, labProcess(t, "down", "")); o.status != statusOK {
		t.Errorf("down: status %d, %s", o.status, o.stderr)
	}
	labLeftNothing(t)
	if o := finish(t, labProcess(t, "down", "")); o.status != statusOK || !strings.Contains(o.stderr, "there is no lab") {
		t.Errorf("down again: status %d, %s", o.status, o.stderr)
	}
}

// By hand: up, exec, link, counters, down.
func TestLabHand(t *testing.T) {
	down := func() { finish(t, labProcess(t, "down", "")); labLeftNothing(t) }
	if o := finish(t, labProcess(t, "up", "--topology star:2")); o.status != statusOK {
		t.Fatalf("up: status %d, %s", o.status, o.stderr)
	}
	defer down()
	o := finish(t, labProcess(t, "exec", "host1", "sh", "-c", "cat /proc/self/net/fib_trie; echo $ALLCAST_GROUPS"))
	if o.status != statusOK || !strings.Contains(o.stdout, "10.0.0.3") || !strings.Contains(o.stdout, "239.192.76.1:20000") {
		t.Errorf("exec: status %d, %s", o.status, o.stdout)
	}
	for args, want := range map[string]string{
		"host1 down": "", "host1 up": "", "host9 down": "there is no", "leaf0:x up": "has no port", "host1 sideways": "down",
	} {
		o := finish(t, labProcess(t, "link", args))
		if (want == "") != (o.status == statusOK) || !strings.Contains(o.stderr, want) || want != "" && o.status != statusUsage {
			t.Errorf("link %s: status %d, %s", args, o.status, o.stderr)
		}
	}
	if o := finish(t, labProcess(t, "counters", "--json")); o.status != statusOK || !strings.Contains(o.stdout, `"switch":"leaf0","port":"host1"`) {
		t.Errorf("counters: status %d, %s", o.status, o.stdout)
	}
	if o := finish(t, labProcess(t, "up", "--topology star:2")); o.status != statusFailed || !strings.Contains(o.stderr, "lab already") {
		t.Errorf("up again: status %d, %s", o.status, o.stderr)
	}
}
