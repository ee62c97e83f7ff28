package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/lab"
	"github.com/allcast/allcast/internal/report"
	"github.com/allcast/allcast/internal/sim"
	"github.com/allcast/allcast/internal/testenv"
	"github.com/allcast/allcast/internal/topology"
)

// prepare prepares a subcommand for the lab of this test.
func prepare(t *testing.T, sub, args string, command ...string) *exec.Cmd {
	t.Helper()
	if _, err := lab.Attach("nosuch"); os.Geteuid() != 0 || asUsage(err) != err {
		t.Skipf("no lab here: %v", err)
	}
	list := append([]string{"lab", sub, "--name", testName(t)}, strings.Fields(args)...)
	if len(command) > 0 {
		list = append(append(list, "--"), command...)
	}
	cmd := clitest.Process(t, list...)
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir())
	return cmd
}

func testName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("c%dx%d", os.Getpid(), len(t.Name()))
}

// leftOver lists the remains of the test's lab.
func leftOver(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{"/run/netns/%s-*", "/run/allcast-lab-%s.*"} {
		found, _ := filepath.Glob(fmt.Sprintf(pattern, testName(t)))
		left = append(left, found...)
	}
	// Processes have the name of the lab in their arguments; zombies have no arguments.
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range procs {
		text, _ := os.ReadFile(path)
		if args := strings.Split(string(text), "\x00"); slices.Contains(args, testName(t)) ||
			slices.Contains(args, "/run/allcast-lab-"+testName(t)+".key") { // an aggregator
			left = append(left, path)
		}
	}
	return left
}

func leftNothing(t *testing.T) {
	t.Helper()
	if left := leftOver(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// runPerf runs perf in a lab and returns its result and the counters.
func runPerf(t *testing.T, args, command string) (perf map[string]any, c lab.Counters) {
	t.Helper()
	o := clitest.Finish(t, prepare(t, "run", args+" --json", append([]string{"allcast"}, strings.Fields(command)...)...))
	leftNothing(t)
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	if o.Status != cli.StatusOK || len(lines) != 2 {
		t.Fatalf("status %d\n%s\n%s", o.Status, o.Stdout, o.Stderr)
	}
	if err := json.Unmarshal([]byte(lines[0]), &perf); err != nil {
		t.Fatal(err)
	}
	clitest.CheckLine(t, "lab", lines[1])
	if err := json.Unmarshal([]byte(lines[1]), &c); err != nil {
		t.Fatal(err)
	}
	return perf, c
}

// hops is the longest path between two hosts of a fat-tree, in links.
const hops = 4

// probes returns how many bytes the hosts sent by multicast beside what the ranks report. Ranks probe multicast when
// they join, longer on a busy machine.
func probes(c *lab.Counters, reported float64) float64 {
	for _, p := range c.Ports {
		if strings.HasPrefix(p.Port, "host") {
			reported -= float64(p.McastRx)
		}
	}
	return -reported
}

// checkMulticast checks that each byte which ranks report to have multicast crosses each link of its tree once. A
// datagram contains only our header of 16 bytes and the payload. Lost datagrams cross fewer links, and are repaired.
func checkMulticast(t *testing.T, g *topology.Graph, perf map[string]any, c *lab.Counters, reported, payload float64) {
	t.Helper()
	links := float64(g.Tree(0).Links(0))
	extra := probes(c, reported)
	missed := hops * perf["repaired_bytes"].(float64) / (links * payload)
	r := (float64(c.McastLinkBytes) - links*extra) / (links * payload)
	t.Logf("contents of datagrams are %.4f times the minimal tree's payload; probes %.4f; missed at most %.4f", r,
		extra/payload, missed)
	if extra < 0 || r < 1-missed || r > 1.003 {
		t.Errorf("contents of datagrams are %.4f times the minimal tree's payload, want 1 to 1.003", r)
	}
}

// The paper's main claim, on real ports: with multicast, all links together carry little more than the payload on a
// minimal tree. With the ring, they carry 1.5 to 2.1 times as much.
func TestTraffic(t *testing.T) {
	const spec, bytes, iters = "fat-tree:16,4,2", 65536, 10
	perf, mcast := runPerf(t, "--groups 1 --topology "+spec,
		"perf allgather --json --algo mcast --chains 1 -b 64K -e 64K -n 10 -w 0")
	if perf["algo"] != "mcast" || perf["wrong"] != 0.0 {
		t.Fatalf("%v", perf)
	}
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	minimal := float64(g.TreeTraversals() * bytes * iters)
	calls := float64(g.Hosts * iters)
	checkMulticast(t, g, perf, &mcast, calls*perf["mcast_bytes"].(float64), calls*bytes)
	// All links together carry little besides datagrams. Repairs come on top on a busy machine: no rank sent more of
	// them than the busiest.
	repairs := hops * calls * (perf["sent_bytes"].(float64) - perf["mcast_bytes"].(float64))
	rest := float64(mcast.LinkBytes - mcast.McastLinkBytes)
	t.Logf("%.4f of the payload besides contents of datagrams, repairs at most %.4f", rest/minimal, repairs/minimal)
	if rest > 0.06*minimal+max(0, repairs) {
		t.Errorf("besides contents of datagrams, the links carry %.4f of the minimal tree's payload, repairs at most %.4f",
			rest/minimal, repairs/minimal)
	}
	if perf["repaired_bytes"] == 0.0 {
		checkTree(t, g, mcast.Ports)
		checkSimulator(t, g, bytes, iters, perf["mcast_bytes"].(float64), mcast.Ports)
	}
	if mcast.Topology != spec || mcast.Hosts != 16 || mcast.Switches != 6 || len(mcast.Ports) != 4*6+2*4 {
		t.Errorf("%+v", mcast)
	}
	perf, ring := runPerf(t, "--topology "+spec,
		"perf allgather --json --algo ring -b 64K -e 64K -n 10 -w 0")
	if perf["algo"] != "ring" || perf["wrong"] != 0.0 {
		t.Fatalf("%v", perf)
	}
	if r := float64(ring.LinkBytes-ring.McastLinkBytes) / minimal; r < 1.5 || r > 2.1 {
		t.Errorf("the ring puts %.2f times as many bytes on the links, want 1.5 to 2.1", r)
	}
}

// The counters of a second command, here joining and barriers, are apart from those of a Broadcast.
func TestBaseline(t *testing.T) {
	const spec, bytes, iters = "fat-tree:16,4,2", 65536, 40
	cmd := prepare(t, "run", "--topology "+spec+" --json",
		strings.Fields("allcast perf broadcast --json --algo mcast -b 64K -n 40 -w 0 -c 0")...)
	cmd.Args = slices.Insert(cmd.Args, slices.Index(cmd.Args, "--"),
		"--baseline", "allcast perf barrier --algo recursive-doubling -n 20 -w 0")
	o := clitest.Finish(t, cmd)
	leftNothing(t)
	lines := strings.Split(strings.TrimSpace(o.Stdout), "\n")
	var c lab.Counters
	if o.Status != cli.StatusOK || len(lines) != 2 {
		t.Fatalf("status %d\n%s\n%s", o.Status, o.Stdout, o.Stderr)
	}
	clitest.CheckLine(t, "lab", lines[1])
	if err := json.Unmarshal([]byte(lines[1]), &c); err != nil {
		t.Fatal(err)
	}
	g, err := topology.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	var perf map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &perf); err != nil {
		t.Fatal(err)
	}
	checkMulticast(t, g, perf, &c, iters*perf["mcast_bytes"].(float64), iters*bytes)
	if minimal := uint64(g.Tree(0).Links(0) * bytes * iters); c.BaselineLinkBytes == 0 || c.BaselineLinkBytes > minimal/2 {
		t.Errorf("the baseline put %d bytes on all links, want less than half of %d", c.BaselineLinkBytes, minimal)
	}
}

// checkSimulator compares every link direction with a simulated run. The multicast payload is the same after
// subtracting probes and headers.
func checkSimulator(t *testing.T, g *topology.Graph, bytes, iters int64, sent float64, ports []lab.Counting) {
	t.Helper()
	r, err := sim.Run(sim.Config{
		Op: "allgather", Algo: "mcast", Topology: g, Bytes: bytes, Timeout: 10 * time.Second, Seed: 1,
		Schedule: sim.Schedule{Chains: 1, Subgroups: 1, ChainBy: "rank", Chunk: 8956},
		Network:  sim.Network{Rate: 10e9, Latency: time.Microsecond, Flow: "none"},
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
	// The probes of each host are on each link direction of its tree.
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
			t.Errorf("%s to %s: %.0f bytes of multicast payload, simulated %.0f", g.NodeName(g.Links[l].From),
				g.NodeName(g.Links[l].To), got, want)
		}
	}
}

// crossed lists the link directions that a datagram of the first tree crosses, starting with in.
func crossed(g *topology.Graph, in topology.LinkID) []topology.LinkID {
	all := []topology.LinkID{in}
	for _, l := range g.Tree(0).Ports[g.Links[in].To] {
		if l != g.Reverse(in) {
			all = append(all, crossed(g, l)...)
		}
	}
	return all
}

// checkTree checks every port to the byte: datagrams of a host are on each link direction of its tree, which goes over
// spine 0, and on no other.
func checkTree(t *testing.T, g *topology.Graph, ports []lab.Counting) {
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
			t.Errorf("%s of %s: %d and %d bytes of multicast in and out, want %d and %d", p.Port, p.Switch, p.McastRx,
				p.McastTx, rx, tx)
		}
	}
	if len(sent) != g.Hosts {
		t.Errorf("%d ports of hosts, want %d", len(sent), g.Hosts)
	}
}

// Each subgroup has its own tree, through its own spine.
func TestSubgroups(t *testing.T) {
	perf, c := runPerf(t, "--topology fat-tree:4,2,2 --groups 2",
		"perf broadcast --json --algo mcast -b 1M -n 1 -w 0 --subgroups 2")
	if perf["subgroups"] != 2.0 || perf["wrong"] != 0.0 {
		t.Fatalf("%v", perf)
	}
	most := 512<<10*1.003 + probes(&c, perf["mcast_bytes"].(float64))
	for _, p := range c.Ports {
		if p.Switch == "leaf0" && strings.HasPrefix(p.Port, "spine") && (p.McastTx < 512<<10 || float64(p.McastTx) > most) {
			t.Errorf("%d bytes of multicast to %s, want half a MiB to %.0f", p.McastTx, p.Port, most)
		}
	}
	o := clitest.Finish(t, prepare(t, "run", "--topology star:2 --groups 1", "allcast", "perf", "broadcast", "--algo",
		"mcast", "-b", "1M", "--subgroups", "2"))
	if o.Status == cli.StatusOK || !strings.Contains(o.Stderr, "2 subgroups, and only 1 multicast groups") {
		t.Errorf("status %d\n%s", o.Status, o.Stderr)
	}
}

// About as many datagrams are lost as --loss says, one at a time, and all are repaired.
func TestLoss(t *testing.T) {
	perf, c := runPerf(t, "--topology star:4 --loss 2% --duplicate 2% --rate 500mbit",
		"perf broadcast --json --algo mcast -b 4M -n 3 -w 0")
	if perf["wrong"] != 0.0 || perf["repaired_bytes"] == 0.0 || perf["duplicate_chunks"] == 0.0 {
		t.Errorf("%v", perf)
	}
	chunks := perf["chunks_total"].(float64)
	if r := float64(c.Lost) / chunks; r < 0.01 || r > 0.035 {
		t.Errorf("%d of %v datagrams lost, want about 2 %%", c.Lost, chunks)
	}
	if perf, c = runPerf(t, "--topology star:4 --loss-all 1% --rate 500mbit",
		"perf broadcast --json --algo binomial -b 1M -n 2 -w 0"); perf["wrong"] != 0.0 || c.Lost == 0 {
		t.Errorf("%d packets lost: %v", c.Lost, perf)
	}
}

// startRanks starts a job and waits until its ranks run.
func startRanks(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !testenv.Soon(func() bool {
		n, _ := filepath.Glob(cmd.Dir + "/rank*")
		return len(n) == 4
	}) {
		t.Fatal("the ranks do not start")
	}
}

// sleeper is a job whose ranks leave behind a process outside their process group.
var sleeper = []string{"sh", "-c", "setsid sleep 300 & touch rank$RANK; exec sleep 300"}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := prepare(t, "run", "--topology fat-tree:4,2,2", sleeper...)
		cmd.Dir = t.TempDir()
		startRanks(t, cmd)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if s := cmd.ProcessState.ExitCode(); s != cli.StatusFailed {
			t.Errorf("%v: status %d", sig, s)
		}
		leftNothing(t)
	}
}

// "lab down" removes everything that kill -9 leaves behind.
func TestKilled(t *testing.T) {
	cmd := prepare(t, "run", "--topology fat-tree:4,2,2", sleeper...)
	cmd.Dir = t.TempDir()
	startRanks(t, cmd)
	inside, _ := os.ReadDir("/run/netns")
	if len(inside) == 0 {
		t.Error("no namespaces")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if len(leftOver(t)) == 0 {
		t.Error("the killed lab left nothing behind, so the test checks nothing")
	}
	if o := clitest.Finish(t, prepare(t, "down", "")); o.Status != cli.StatusOK {
		t.Errorf("down: status %d, %s", o.Status, o.Stderr)
	}
	leftNothing(t)
	if o := clitest.Finish(t, prepare(t, "down", "")); o.Status != cli.StatusOK ||
		!strings.Contains(o.Stderr, "there is no lab") {
		t.Errorf("down again: status %d, %s", o.Status, o.Stderr)
	}
}

// The subcommands for manual use: up, exec, link, counters, down.
func TestHand(t *testing.T) {
	down := func() { clitest.Finish(t, prepare(t, "down", "")); leftNothing(t) }
	if o := clitest.Finish(t, prepare(t, "up", "--topology star:2")); o.Status != cli.StatusOK {
		t.Fatalf("up: status %d, %s", o.Status, o.Stderr)
	}
	defer down()
	o := clitest.Finish(t, prepare(t, "exec", "host1", "sh", "-c", "cat /proc/self/net/fib_trie; echo $ALLCAST_GROUPS"))
	if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "10.0.0.3") ||
		!strings.Contains(o.Stdout, "239.192.76.1:20000") {
		t.Errorf("exec: status %d, %s", o.Status, o.Stdout)
	}
	for args, want := range map[string]string{
		"host1 down": "", "host1 up": "", "host9 down": "there is no", "leaf0:x up": "has no port", "host1 sideways": "down",
	} {
		o := clitest.Finish(t, prepare(t, "link", args))
		if (want == "") != (o.Status == cli.StatusOK) || !strings.Contains(o.Stderr, want) || want != "" &&
			o.Status != cli.StatusUsage {
			t.Errorf("link %s: status %d, %s", args, o.Status, o.Stderr)
		}
	}
	if o := clitest.Finish(t, prepare(t, "counters", "--json")); o.Status != cli.StatusOK ||
		!strings.Contains(o.Stdout, `"switch":"leaf0","port":"host1"`) {
		t.Errorf("counters: status %d, %s", o.Status, o.Stdout)
	}
	if o := clitest.Finish(t, prepare(t, "up", "--topology star:2")); o.Status != cli.StatusFailed ||
		!strings.Contains(o.Stderr, "lab already") {
		t.Errorf("up again: status %d, %s", o.Status, o.Stderr)
	}
}
