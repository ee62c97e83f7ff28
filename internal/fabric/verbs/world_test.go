//go:build verbs

package verbs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var ports atomic.Int32

// rankProcess is the process of one rank.
type rankProcess struct {
	*exec.Cmd
	out, err output
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed by the next write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.b.Write(b)
}

func (o *output) String() string {
	s, _ := o.look()
	return s
}

func (o *output) look() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more == nil {
		o.more = make(chan struct{})
	}
	return o.b.String(), o.more
}

// waitFor waits until the output contains text.
func (o *output) waitFor(t *testing.T, text string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		s, more := o.look()
		if strings.Contains(s, text) {
			return
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("no %q: %s", text, s)
		}
	}
}

// start starts the ranks of a job. No other program in the guest uses these ports.
func start(t *testing.T, ranks int, devices, mode string) []*rankProcess {
	t.Helper()
	port := 20000 + ports.Add(1)
	var all []*rankProcess
	for r := range ranks {
		p := &rankProcess{Cmd: exec.Command(os.Args[0])}
		p.Stdout, p.Stderr = &p.out, &p.err
		p.Env = append(os.Environ(), "VERBS_RANK="+mode,
			fmt.Sprintf("RANK=%d", r), fmt.Sprintf("WORLD_SIZE=%d", ranks),
			"MASTER_ADDR=127.0.0.1", fmt.Sprintf("MASTER_PORT=%d", port),
			"ALLCAST_KEY=0123456789abcdef0123456789abcdef", "ALLCAST_FABRIC=verbs", "ALLCAST_DEVICE="+devices,
			"ALLCAST_TIMEOUT=60s") // an emulated machine may be slow; verbs detects dead ranks
		must(t, p.Start())
		all = append(all, p)
	}
	t.Cleanup(func() {
		for _, p := range all {
			if p.ProcessState == nil {
				_ = p.Process.Kill()
				_ = p.Wait()
			}
		}
	})
	return all
}

// finish waits for all ranks, and returns their verdicts.
func finish(t *testing.T, all []*rankProcess) []verdict {
	t.Helper()
	var said []verdict
	for r, p := range all {
		if err := p.Wait(); err != nil {
			t.Fatalf("rank %d: %v\n%s%s", r, err, &p.out, &p.err)
		}
		v, err := parse(p.out.String())
		if err != nil {
			t.Fatalf("rank %d: %v: %s", r, err, &p.out)
		}
		said = append(said, v)
	}
	return said
}

func TestMatrix(t *testing.T) {
	for _, net := range []struct {
		name string
		make func(t *testing.T) string
	}{{"dummy", dummyNet}, {"veth", func(t *testing.T) string { t.Helper(); return vethNet(t, 0) }}} {
		t.Run(net.name, func(t *testing.T) {
			devices := net.make(t)
			for _, ranks := range []int{2, 3, 4} {
				t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) {
					begin := time.Now()
					for _, v := range finish(t, start(t, ranks, devices, "matrix")) {
						if v.Fabric != "verbs" || v.Received == 0 {
							t.Errorf("rank %d: fabric %s, %d chunks by multicast", v.Rank, v.Fabric, v.Received)
						}
						t.Logf("%+v, %v", v, time.Since(begin).Round(time.Millisecond))
					}
				})
			}
		})
	}
}

// On a link that loses 5 % of all packets, ranks read lost chunks from their neighbour's memory.
func TestLoss(t *testing.T) {
	devices := vethNet(t, 5)
	var repaired, bytes, reads uint64
	for _, v := range finish(t, start(t, 4, devices, "large")) {
		t.Logf("%+v", v)
		repaired, bytes, reads = repaired+v.Repaired, bytes+v.RepairedBytes, reads+v.Reads
	}
	t.Logf("%d chunks of %d bytes in all were repaired by %d RDMA READs", repaired, bytes, reads)
	if repaired == 0 || reads == 0 {
		t.Error("nothing was repaired: was nothing lost?")
	}
}

// Ranks that wait for the network sleep.
func TestIdle(t *testing.T) {
	finish(t, start(t, 2, dummyNet(t), "idle"))
}

// Communicators of some of the ranks work.
func TestSplit(t *testing.T) {
	for _, v := range finish(t, start(t, 4, dummyNet(t), "split")) {
		t.Logf("%+v", v)
	}
}

// warned is the warning of a communicator's first rank when its groups do not work.
const warned = "the multicast groups of a communicator do not work"

// The ranks detect a group that one of them does not hear when they make the communicator. They then
// share the job's groups: they fetch nothing, and other ranks receive their datagrams.
func TestSplitFindsDeafRank(t *testing.T) {
	begin := time.Now()
	all := start(t, 4, dummyNet(t), "deaf")
	for _, v := range finish(t, all) {
		t.Logf("%+v", v)
		if v.Repaired > v.Received/10 {
			t.Errorf("rank %d fetched %d chunks, and received %d", v.Rank, v.Repaired, v.Received)
		}
		if v.Rank >= 2 && v.Foreign == 0 {
			t.Errorf("rank %d heard nothing of a communicator that shares the job's groups", v.Rank)
		}
	}
	said := all[0].err.String()
	t.Logf("%v: %s", time.Since(begin).Round(time.Millisecond), said)
	if strings.Count(said, warned) != 2 {
		t.Error("want a warning for each of two communicators")
	}
	for _, want := range []string{`"rank 1 did not hear rank 0"`, `"rank 1 did not hear rank 0 and 2 more"`} {
		if !strings.Contains(said, want) {
			t.Errorf("no %s", want)
		}
	}
	if s := all[2].err.String(); strings.Contains(s, warned) {
		t.Errorf("a group that works is not used: %s", s)
	}
}

// The same for a communicator that Shrink makes.
func TestShrinkFindsDeafRank(t *testing.T) {
	begin := time.Now()
	all := start(t, 4, dummyNet(t), "shrink")
	must(t, all[3].Wait())
	for _, v := range finish(t, all[:3]) {
		t.Logf("%+v", v)
		if v.Repaired > v.Received/10 {
			t.Errorf("rank %d fetched %d chunks, and received %d", v.Rank, v.Repaired, v.Received)
		}
	}
	said := all[0].err.String()
	t.Logf("%v: %s", time.Since(begin).Round(time.Millisecond), said)
	if strings.Count(said, warned) != 1 || !strings.Contains(said, "rank 1 did not hear rank 0 and 1 more") {
		t.Error("want a warning that names the ranks")
	}
}

// All ranks name a killed rank in their errors, in bounded time.
func TestKill(t *testing.T) {
	devices := dummyNet(t)
	all := start(t, 4, devices, "endless")
	const victim = 2
	all[victim].out.waitFor(t, "under way")
	must(t, all[victim].Process.Kill())
	begin := time.Now()
	for r, p := range all {
		err := p.Wait()
		if r == victim {
			continue
		}
		if err != nil || !strings.Contains(p.out.String(), fmt.Sprintf("rank %d: ", victim)) {
			t.Errorf("rank %d does not name rank %d: %v\n%s%s", r, victim, err, &p.out, &p.err)
		}
	}
	t.Logf("all ranks ended %v after the kill; output of rank 0: %s%s", time.Since(begin).Round(time.Millisecond),
		&all[0].out, &all[0].err)
}
