package lab_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allcast/allcast/internal/lab"
)

// relay plays an aggregator: it passes each datagram on to its parent, and at the top to the sender, whose
// address is in the datagram. It also answers on TCP.
func relay(args []string) error {
	flags := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	text, err := os.ReadFile(flags["--site-key-file"])
	if key, bad := hex.DecodeString(strings.TrimSpace(string(text))); err != nil || bad != nil || len(key) < 16 {
		return fmt.Errorf("site key %q: %w", text, errors.Join(err, bad))
	}
	if text, err := os.ReadFile(refuseFile()); err == nil {
		return errors.New(string(text))
	}
	in, err := net.ListenPacket("udp4", flags["--listen"])
	if err != nil {
		return err
	}
	tcp, err := net.Listen("tcp4", flags["--listen"])
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	_, _ = fmt.Fprintln(os.Stdout, "listening on", in.LocalAddr())
	buf := make([]byte, 65536)
	for {
		n, _, err := in.ReadFrom(buf)
		if err != nil {
			return err
		}
		to := flags["--parent"]
		if to == "" {
			to, _, _ = strings.Cut(string(buf[:n]), " ")
		}
		addr, err := net.ResolveUDPAddr("udp4", to)
		if err != nil {
			return err
		}
		if _, err := in.WriteTo(buf[:n], addr); err != nil {
			return err
		}
	}
}

// refuseFile is a file that makes relays fail.
func refuseFile() string { return os.Getenv("ALLCAST_TEST_REFUSE") }

const datagram = 1000 // bytes of a datagram of bounce

// bounce is a rank that sends datagrams to its aggregator, gets them back from the top, and prints how many were
// lost. It sends a few at a time, so that no socket overflows, then a mark, which it repeats after a while if it is
// not back.
func bounce(count, repeat string) error {
	total, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	wait, err := time.ParseDuration(repeat)
	if err != nil {
		return err
	}
	server, local, err := addresses()
	if err != nil {
		return err
	}
	c, err := net.ListenUDP("udp4", local)
	if err != nil {
		return err
	}
	to, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		return err
	}
	send := func(word string) error {
		b := make([]byte, datagram)
		copy(b, fmt.Sprint(c.LocalAddr(), " ", word, " "))
		_, err := c.WriteTo(b, to)
		return err
	}
	got := map[string]bool{}
	buf := make([]byte, 2*datagram)
	for i := 0; i < total; {
		for k := 0; k < 10 && i < total; k++ {
			if err := send(strconv.Itoa(i)); err != nil {
				return err
			}
			i++
		}
		for mark := fmt.Sprint("mark", i); !got[mark]; {
			if err := send(mark); err != nil {
				return err
			}
			_ = c.SetReadDeadline(time.Now().Add(wait))
			for !got[mark] {
				n, err := c.Read(buf)
				if err != nil {
					break // the mark was lost
				}
				got[strings.Fields(string(buf[:n]))[1]] = true
			}
		}
	}
	lost := 0
	for i := range total {
		if !got[strconv.Itoa(i)] {
			lost++
		}
	}
	if lost > 0 {
		fmt.Fprintln(os.Stderr, "lost", lost)
	}
	return nil
}

// stream is a rank that exchanges a megabyte with its aggregator over TCP.
func stream() error {
	server, _, err := addresses()
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp4", server)
	if err != nil {
		return err
	}
	sent := bytes.Repeat([]byte("megabyte"), 1<<17)
	go func() { _, _ = c.Write(sent); _ = c.(*net.TCPConn).CloseWrite() }()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, sent) {
		return fmt.Errorf("%d bytes came back: %w", len(got), err)
	}
	return nil
}

// addresses returns the address of this rank's aggregator and that of this host.
func addresses() (server string, local *net.UDPAddr, err error) {
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return "", nil, err
	}
	for _, text := range strings.Split(os.Getenv("ALLCAST_AGGREGATORS"), ";") {
		addr, ranks, _ := strings.Cut(text, "=")
		ranks, _, _ = strings.Cut(ranks, ">")
		var first, last int
		if n, _ := fmt.Sscanf(ranks, "%d-%d", &first, &last); n == 1 {
			last = first
		} else if n == 0 {
			continue
		}
		if rank >= first && rank <= last {
			server = addr
		}
	}
	ifi, err := net.InterfaceByName(os.Getenv("ALLCAST_IFNAME"))
	if err != nil {
		return "", nil, err
	}
	list, err := ifi.Addrs()
	if err != nil {
		return "", nil, err
	}
	return server, &net.UDPAddr{IP: list[0].(*net.IPNet).IP}, nil
}

// A contribution goes up the tree of aggregators, and a result down to its host: each link of the tree carries every
// datagram once, and no other link carries any.
func TestAggregatorPaths(t *testing.T) {
	const count = 20
	for _, spec := range []string{"star:3", "fat-tree:6,3,2", "fat-tree3:8,4"} {
		t.Run(spec, func(t *testing.T) {
			l, self := up(t, lab.Config{Topology: spec, Inc: true})
			// Nothing is lost, so a rank waits for its mark. A repeated one would count, or still be on its way.
			c, _, err := run(t, l, self, self[0], "bounce", strconv.Itoa(count), "5m")
			if err != nil {
				t.Fatal(err)
			}
			g := l.Plan.Graph
			tree := g.Tree(g.Trees() - 1)
			hosts := make([]int, g.Nodes()) // below each node of the tree
			for h := range g.Hosts {
				for n, at := 0, l.Plan.Nodes[h].ID; n >= 0; {
					hosts[at]++
					n = -1
					for _, link := range tree.Ports[at] {
						if up := g.Links[link].To; at != tree.Top && up > at && !g.IsHost(up) {
							n, at = 0, up
							break
						}
					}
				}
			}
			const frame = datagram + 14 + 20 + 8
			for _, p := range c.Ports {
				var want uint64
				from, to := l.Plan.Find(p.Switch).ID, l.Plan.Find(p.Port).ID
				for _, link := range tree.Ports[from] {
					if g.Links[link].To == to {
						want = uint64(min(hosts[from], hosts[to])) * count * frame
					}
				}
				want += want / 10 // a mark follows every ten datagrams
				if p.Rx != want || p.Tx != want {
					t.Errorf("port %s of %s: %d bytes in, %d out, want both %d", p.Port, p.Switch, p.Rx, p.Tx, want)
				}
			}
		})
	}
}

// Datagrams of aggregators are lost at every hop, one at a time. TCP is not affected.
func TestAggregatorLoss(t *testing.T) {
	const count, loss = 1000, 0.05
	l, self := up(t, lab.Config{Topology: "fat-tree:6,3,2", Inc: true, Loss: loss})
	t.Setenv("TMPDIR", t.TempDir())
	var stderr bytes.Buffer
	c, err := l.Run(t.Context(), lab.Job{
		Command: []string{self[0], "bounce", strconv.Itoa(count), "100ms"},
		Self:    self, Stdout: io.Discard, Stderr: &stderr, Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for line := range strings.Lines(stderr.String()) {
		var rank, n int
		if _, err := fmt.Sscanf(line, "[%d] lost %d", &rank, &n); err == nil {
			lost += n
		}
	}
	const hops = 3 // to the leaf, to the spine, to the host
	share := float64(lost) / (6 * count)
	if want := hops * loss; share < 0.8*want || share > 1.1*want || c.Lost < uint64(lost) {
		t.Errorf("%.3f of all datagrams were lost, want about %.2f; %d drops were counted", share, want, c.Lost)
	}
	if c, _, err := run(t, l, self, self[0], "stream"); err != nil || c.Lost != 0 {
		t.Errorf("TCP: %v, %d packets lost", err, c.Lost)
	}
}

// With LossAll, the packets of TCP to and from aggregators are lost too.
func TestAggregatorLossAll(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:2", Inc: true, LossAll: 0.02})
	if c, _, err := run(t, l, self, self[0], "stream"); err != nil || c.Lost == 0 {
		t.Errorf("%v, %d packets lost", err, c.Lost)
	}
}

// The lab starts aggregators, kills, stops and restarts them, and ends them with it.
func TestAggregatorProcesses(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "fat-tree:4,2,2", Inc: true})
	pids := map[string]int{}
	for _, name := range []string{"leaf0", "leaf1", "spine1"} {
		pid, err := l.AggregatorPID(name)
		if err != nil || syscall.Kill(pid, 0) != nil {
			t.Errorf("%s: process %d, %v", name, pid, err)
		}
		pids[name] = pid
	}
	for _, name := range []string{"spine0", "host0", ""} {
		if _, err := l.AggregatorPID(name); !errors.Is(err, lab.ErrConfig) || !strings.Contains(err.Error(), "leaf0 leaf1") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGKILL} {
		if err := l.SignalAggregator("leaf1", sig); err != nil {
			t.Error(err)
		}
	}
	if err := l.SignalAggregator("leaf1", syscall.SIGSTOP); err == nil {
		t.Error("a killed aggregator takes signals")
	}
	for _, name := range []string{"leaf1", "spine1"} {
		if err := l.RestartAggregator(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for name, old := range pids {
		if pid, err := l.AggregatorPID(name); err != nil || (pid == old) != (name == "leaf0") {
			t.Errorf("%s was process %d and is %d, %v", name, old, pid, err)
		}
	}
	// The holder's lock is not that of its aggregators.
	if files, err := openFiles(pids["leaf0"]); err != nil || strings.Contains(files, "lock") {
		t.Errorf("an aggregator has the files %s, %v", files, err)
	}
	if _, _, err := run(t, l, self, self[0], "bounce", "20", "100ms"); err != nil {
		t.Error(err)
	}
	again, err := lab.Attach(l.Plan.Config.Name)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err := again.AggregatorPID("leaf0"); err != nil || pid != pids["leaf0"] {
		t.Errorf("after Attach: %d, %v", pid, err)
	}
}

// openFiles lists the open files of a process.
func openFiles(pid int) (string, error) {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	list, err := os.ReadDir(dir)
	var names []string
	for _, e := range list {
		name, _ := os.Readlink(dir + e.Name()) // it may have been closed
		names = append(names, name)
	}
	return strings.Join(names, " "), err
}

// Ranks in a lab without aggregators do not try to reach those of the environment, which are outside.
func TestNoAggregators(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:1"})
	t.Setenv("ALLCAST_AGGREGATORS", "10.0.0.1:7900=0")
	t.Setenv("ALLCAST_SITE_KEY_FILE", "/nowhere")
	_, _, err := run(t, l, self, "sh", "-c", `test -z "$ALLCAST_AGGREGATORS$ALLCAST_SITE_KEY_FILE"`)
	if err != nil {
		t.Error(err)
	}
}

// The output of aggregators follows that of the ranks.
func TestAggregatorOutput(t *testing.T) {
	l, self := up(t, lab.Config{Topology: "star:2", Inc: true})
	t.Setenv("TMPDIR", t.TempDir())
	var stderr bytes.Buffer
	pid, err := l.AggregatorPID("leaf0")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("kill -9 %d; until grep -q ended /run/allcast-lab-%s.leaf0.log; do :; done; exit $RANK", pid,
		l.Plan.Config.Name)
	_, err = l.Run(t.Context(), lab.Job{
		Command: []string{"sh", "-c", script}, Self: self, Stdout: io.Discard, Stderr: &stderr, Log: t.Logf,
	})
	if err == nil {
		t.Error("the job has not failed")
	}
	if logs, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*/leaf0.log"); len(logs) != 1 {
		t.Errorf("kept logs: %v", logs)
	}
	if !strings.Contains(stderr.String(), "[leaf0] the aggregator has ended: signal: killed\n") {
		t.Errorf("%q", stderr.String())
	}
}

// If an aggregator cannot listen, there is no lab, and the error says why.
func TestAggregatorRefuses(t *testing.T) {
	_, self := up(t, lab.Config{Topology: "star:1"}) // skips the test where labs cannot run
	t.Setenv("ALLCAST_TEST_REFUSE", t.TempDir()+"/refuse")
	if err := os.WriteFile(refuseFile(), []byte("not today"), 0o644); err != nil {
		t.Fatal(err)
	}
	name := labName(t) + "r"
	_, err := lab.Up(t.Context(), lab.Config{Name: name, Topology: "star:2", Inc: true},
		lab.Options{Self: self, Aggregator: []string{self[0], "aggregator"}})
	if err == nil || !strings.Contains(err.Error(), "the aggregator in leaf0: not today") {
		t.Errorf("got %v", err)
	}
	leftNothing(t, name)
	_, err = lab.Up(t.Context(), lab.Config{Name: name, Topology: "star:2", Inc: true}, lab.Options{Self: self})
	if err == nil || !strings.Contains(err.Error(), "no command to run") {
		t.Errorf("without a command: %v", err)
	}
	leftNothing(t, name)
}
