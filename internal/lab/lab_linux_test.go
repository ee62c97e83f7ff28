package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allcast/allcast"
	"github.com/allcast/allcast/internal/lab"
)

// The lab starts the test binary as its hold process, its enter process and its ranks.
func TestMain(m *testing.M) {
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "hold":
		exit(lab.Hold(args[1], os.Stdin, os.Stdout))
	case len(args) > 3 && args[0] == "enter":
		exit(lab.Enter(args[1], args[3:]))
	case len(args) == 2 && args[0] == "rank":
		exit(rank(args[1]))
	case len(args) > 1 && args[0] == "aggregator":
		exit(relay(args[1:]))
	case len(args) == 3 && args[0] == "bounce":
		exit(bounce(args[1], args[2]))
	case len(args) == 1 && args[0] == "stream":
		exit(stream())
	case len(args) == 4 && args[0] == "halves":
		exit(half(args[1], args[2], args[3]))
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rank runs an Allgather. The algorithm determines which links the bytes cross.
func rank(algo string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	c, err := allcast.Join(ctx, allcast.Options{NoMulticast: algo == "linear"})
	if err != nil {
		return err
	}
	const n = 10000
	got := make([]byte, n*c.Size())
	if err := c.Allgather(ctx, bytes.Repeat([]byte{byte(c.Rank())}, n), got, allcast.WithAlgorithm(algo)); err != nil {
		return err
	}
	for r := range c.Size() {
		if !bytes.Equal(got[r*n:(r+1)*n], bytes.Repeat([]byte{byte(r)}, n)) {
			return fmt.Errorf("rank %d received wrong data from rank %d", c.Rank(), r)
		}
	}
	return c.Close()
}

// half runs Allgathers by multicast in a Subset of half of the ranks, in the first half only or in both, and
// prints the shortest time of one.
func half(which, size, subgroups string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	block, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	subs, err := strconv.Atoi(subgroups)
	if err != nil {
		return err
	}
	c, err := allcast.Join(ctx, allcast.Options{Subgroups: subs, NoCalibration: true})
	if err != nil {
		return err
	}
	n := c.Size() / 2
	first := c.Rank() / n * n
	if which == "both" || first == 0 {
		var members []int
		for r := range n {
			members = append(members, first+r)
		}
		sub, err := c.Subset(ctx, members, "half")
		if err != nil {
			return err
		}
		if err := gatherHalf(ctx, sub, block); err != nil {
			return err
		}
	}
	return errors.Join(c.Barrier(ctx), c.Close())
}

func gatherHalf(ctx context.Context, c *allcast.Comm, n int) error {
	got := make([]byte, n*c.Size())
	mine := bytes.Repeat([]byte{byte(c.WorldRank(c.Rank()))}, n)
	best := time.Hour
	for range 5 {
		start := time.Now()
		if err := c.Allgather(ctx, mine, got, allcast.WithAlgorithm("mcast")); err != nil {
			return err
		}
		best = min(best, time.Since(start))
	}
	for r := range c.Size() {
		if !bytes.Equal(got[r*n:(r+1)*n], bytes.Repeat([]byte{byte(c.WorldRank(r))}, n)) {
			return fmt.Errorf("rank %d received wrong data from rank %d", c.Rank(), r)
		}
	}
	if c.Rank() == 0 {
		s := c.Stats()
		_, err := fmt.Fprintf(os.Stdout, "%d bytes per rank in %v, %d chunks repaired, %d received by %v\n",
			n, best, s.RepairedChunks, s.ReceivedChunks, c.Datapath())
		return err
	}
	return nil
}

// Multicast of a communicator crosses only the links of its members: each block once per member's link, and
// links between switches only if they lead to a member.
func TestCommunicatorsApart(t *testing.T) {
	const block, rounds = 1 << 18, 5
	for _, c := range []struct{ topology, subgroups, hook string }{
		{"star:8", "1", ""},
		{"fat-tree:8,4,2", "2", ""},
		{"star:8", "2", "sockfilter"},
		{"star:8", "2", "tcx"},
		{"star:8", "2", "xdp"},
	} {
		t.Run(c.topology+c.hook, func(t *testing.T) {
			if c.hook != "" {
				t.Setenv("ALLCAST_DATAPATH", "auto") // the process receives if the kernel cannot
				t.Setenv("ALLCAST_HOOK", c.hook)
			}
			l, self := up(t, lab.Config{Topology: c.topology, Groups: 2})
			got, out, err := run(t, l, self, self[0], "halves", "first", strconv.Itoa(block), c.subgroups)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(out)
			const all = 4 * rounds * block
			for _, p := range got.Ports {
				switch host := strings.TrimPrefix(p.Port, "host"); {
				case host >= "4" && host <= "7" && p.McastTx > all/4:
					t.Errorf("%d bytes of multicast to %s, which is not a member", p.McastTx, p.Port)
				case (p.Port == "leaf2" || p.Port == "leaf3") && p.McastTx > all/4:
					t.Errorf("%d bytes of multicast to %s, which has no members", p.McastTx, p.Port)
				case host >= "0" && host <= "3" && p.McastTx < all*3/4:
					t.Errorf("%d bytes of multicast to %s, want %d", p.McastTx, p.Port, all*3/4)
				}
			}
		})
	}
}

// BenchmarkHalves compares the time of an Allgather of 1 MiB in one half of eight hosts with that in both
// halves at once, at 200 Mbit/s. With groups of their own, the halves do not slow each other down. If they
// share the job's groups, each link carries the data of both.
func BenchmarkHalves(b *testing.B) {
	l, self := up(b, lab.Config{Topology: "star:8", Rate: 200e6})
	for _, c := range []struct{ name, which, unset string }{
		{"first", "first", "NONE"}, {"both", "both", "NONE"}, {"shared", "both", "ALLCAST_COMM_GROUPS"},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				_, out, err := run(b, l, self, "env", "-u", c.unset, self[0], "halves", c.which, strconv.Itoa(1<<18), "1")
				if err != nil {
					b.Fatal(err)
				}
				_, text, _ := strings.Cut(out, " in ")
				text, _, _ = strings.Cut(text, ",")
				best, err := time.ParseDuration(text)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(best.Microseconds()), "µs/gather")
			}
		})
	}
}

// up builds a lab for the test and takes it down when the test ends.
func up(t testing.TB, cfg lab.Config) (*lab.Lab, []string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name = labName(t)
	l, err := lab.Up(t.Context(), cfg, lab.Options{
		Self: []string{exe}, Aggregator: []string{exe, "aggregator"}, Log: t.Logf,
	})
	if errors.Is(err, lab.ErrUnable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
		leftNothing(t, cfg.Name)
	})
	return l, []string{exe}
}

// labName returns a name that no other running test on this machine uses.
func labName(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("t%dx%d", os.Getpid(), len(t.Name()))
}

func leftNothing(t testing.TB, name string) {
	t.Helper()
	for _, pattern := range []string{"/run/netns/" + name + "-*", "/run/allcast-lab-" + name + ".*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	if pids := holders(name); len(pids) > 0 {
		t.Errorf("left behind: processes %v", pids)
	}
}

// holders finds the processes of a lab by their arguments.
func holders(name string) (pids []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		text, _ := os.ReadFile(path)
		args := strings.Split(string(text), "\x00")
		if slices.Contains(args, name) && (slices.Contains(args, "hold") || slices.Contains(args, "enter")) ||
			slices.Contains(args, "/run/allcast-lab-"+name+".key") {
			pids = append(pids, path)
		}
	}
	return pids
}

func run(t testing.TB, l *lab.Lab, self []string, command ...string) (*lab.Counters, string, error) {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	t.Setenv("TMPDIR", t.TempDir())
	var stdout, stderr bytes.Buffer
	c, err := l.Run(t.Context(), lab.Job{Command: command, Self: self, Stdout: &stdout, Stderr: &stderr, Log: t.Logf})
	t.Log(stderr.String())
	return c, stdout.String(), err
}

// All pairs of hosts exchange data, first by TCP over the spines, then by multicast along a tree.
func TestAllPairs(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "fat-tree:8,2,2"})
	c, _, err := run(t, l, self, self[0], "rank", "linear")
	if err != nil {
		t.Fatal(err)
	}
	spines := map[string]uint64{}
	for _, p := range c.Ports {
		if strings.HasPrefix(p.Switch, "spine") {
			spines[p.Switch] += p.Rx
		}
	}
	// Half of all pairs are in different racks, so 2*4*4 blocks cross the spines.
	if sum := spines["spine0"] + spines["spine1"]; sum < 32*10000 || spines["spine0"] == 0 || spines["spine1"] == 0 {
		t.Errorf("bytes into spines: %v, want at least 320000 in total, and some in each", spines)
	}

	c, _, err = run(t, l, self, self[0], "rank", "mcast")
	if err != nil {
		t.Fatal(err)
	}
	// Each of the 8 blocks crosses the 10 cables of the tree once. Probes and headers add to that.
	if limit := uint64(8 * 10 * 10000); c.McastLinkBytes < limit || c.LinkBytes < c.McastLinkBytes {
		t.Errorf("%d bytes of multicast, %d in total; want at least %d", c.McastLinkBytes, c.LinkBytes, limit)
	}
}

func TestRunEnvironment(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:3", Groups: 2})
	_, out, err := run(t, l, self, "sh", "-c",
		`echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR `+
			`$ALLCAST_IFNAME $ALLCAST_GROUPS $ALLCAST_COMM_GROUPS `+
			`${#ALLCAST_KEY} ${MASTER_PORT:+port} $ALLCAST_RACK ${GOMAXPROCS:+share}`)
	const want = "0 3 0 1 10.0.0.1 eth0 239.192.76.1:20000,239.192.76.2:20001 239.196.0.0/16 64 port leaf0 share\n"
	if err != nil || out != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// The lab keeps a failed job's output.
func TestRunFails(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:3"})
	t.Setenv("TMPDIR", t.TempDir())
	var stdout, stderr bytes.Buffer
	_, err := l.Run(t.Context(), lab.Job{
		Command: []string{"sh", "-c", "echo out $RANK; echo err $RANK >&2; test $RANK != 2 || exit 7; exec sleep 50"},
		Self:    self, Stdout: &stdout, Stderr: &stderr, Log: t.Logf,
	})
	if err == nil || !strings.Contains(err.Error(), "rank 2 exited with status 7") {
		t.Errorf("got %v, want the status of rank 2", err)
	}
	if stdout.String() != "out 0\n" || !strings.Contains(stderr.String(), "[2] err 2\n") {
		t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
	}
	logs, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*/rank2.log")
	if len(logs) != 1 {
		t.Fatalf("logs: %v", logs)
	}
	if text, _ := os.ReadFile(logs[0]); !strings.Contains(string(text), "out 2\n") ||
		!strings.Contains(string(text), "err 2\n") {
		t.Errorf("rank 2's log is %q", text)
	}
}

// A job that uses a group without a tree fails, instead of losing its multicast silently.
func TestNoTree(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:2"})
	t.Setenv("ALLCAST_GROUPS", "") // restored after the test; the command below unsets it
	_, _, err := run(t, l, self, "env", "-u", "ALLCAST_GROUPS", self[0], "rank", "auto")
	if err == nil || !strings.Contains(err.Error(), "no tree") {
		t.Errorf("error %v", err)
	}
}

// TCP avoids a cut cable, and uses it again when it is reconnected.
func TestSetLink(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "fat-tree:4,2,2"})
	through := func() (uint64, uint64) {
		t.Helper()
		c, _, err := run(t, l, self, self[0], "rank", "linear")
		if err != nil {
			t.Fatal(err)
		}
		var spines [2]uint64
		for _, p := range c.Ports {
			for i := range spines {
				if p.Switch == fmt.Sprintf("spine%d", i) {
					spines[i] += p.Rx
				}
			}
		}
		return spines[0], spines[1]
	}
	if err := l.SetLink("leaf1", "spine1", false); err != nil {
		t.Fatal(err)
	}
	if a, b := through(); a == 0 || b != 0 {
		t.Errorf("with a cable to spine1 cut: %d and %d bytes through the spines", a, b)
	}
	if err := errors.Join(l.SetLink("leaf1", "spine1", true), l.SetLink("spine0", "leaf0", false)); err != nil {
		t.Fatal(err)
	}
	if a, b := through(); a != 0 || b == 0 {
		t.Errorf("with a cable to spine0 cut: %d and %d bytes through the spines", a, b)
	}
	for _, bad := range [][2]string{{"leaf7", "spine0"}, {"leaf0", "nowhere"}, {"leaf0", ""}} {
		if err := l.SetLink(bad[0], bad[1], false); !errors.Is(err, lab.ErrConfig) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// A second lab with the same name is refused, and so is attaching to a lab that does not exist.
func TestOnlyOne(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:2"})
	if _, err := lab.Up(t.Context(), l.Plan.Config, lab.Options{Self: self}); err == nil ||
		!strings.Contains(err.Error(), "there is a lab already") {
		t.Errorf("second lab with the same name: %v", err)
	}
	if _, err := lab.Attach(l.Plan.Config.Name); err != nil {
		t.Error(err)
	}
	if _, err := lab.Attach("nosuch"); !errors.Is(err, lab.ErrNone) {
		t.Errorf("attach to a lab that does not exist: %v", err)
	}
}

// Interrupting Up at any point leaves nothing behind.
func TestUpInterrupted(t *testing.T) {
	_, self := up(t, lab.Config{Topology: "star:1"}) // skips the test where labs cannot run
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*time.Millisecond)
		name := fmt.Sprintf("i%dx%d", os.Getpid(), i)
		l, err := lab.Up(ctx, lab.Config{Name: name, Topology: "fat-tree:16,4,2"}, lab.Options{Self: self})
		if err == nil {
			err = l.Down()
		} else if ctx.Err() != nil {
			err = nil
		}
		cancel()
		if err != nil {
			t.Error(err)
		}
		leftNothing(t, name)
	}
}
