package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/lab"
)

// In a Reduce-Scatter by aggregators, the link of each host carries the other ranks' P-1 blocks up and one sum down. A
// link between a leaf and the top carries one sum up per block, and one down per host of the leaf. On a busy machine
// ranks take a late sum for a lost one and ask again; internal/sim checks the bytes exactly. Without aggregators, a
// link would carry P-1 times as much down.
func TestReduceInNetwork(t *testing.T) {
	const block, iters = 1 << 20, 3
	for _, c := range []struct {
		spec  string
		hosts float64
	}{{"star:4", 4}, {"fat-tree:8,4,2", 8}} {
		t.Run(c.spec, func(t *testing.T) {
			perf, got := runPerf(t, "--topology "+c.spec+" --rate 200mbit --inc",
				fmt.Sprintf("perf reduce-scatter --json --algo inc -b %d -n %d -w 0", block, iters))
			if perf["algo"] != "inc" || perf["wrong"] != 0.0 || perf["fallback_reason"] != "" {
				t.Fatalf("%v", perf)
			}
			low, high := excess(got.Ports, c.hosts, block*iters)
			t.Logf("the links carry %.4f to %.4f of the payload", low, high)
			if low < 1 || high >= c.hosts-1 {
				t.Errorf("the links carry %.4f to %.4f of the payload, want 1 to less than %v", low, high, c.hosts-1)
			}
		})
	}
}

// excess returns the smallest and the largest ratio of a link's bytes to the payload that it must carry.
func excess(ports []lab.Counting, hosts, block float64) (low, high float64) {
	low = math.Inf(1)
	add := func(bytes uint64, blocks float64) {
		r := float64(bytes) / (blocks * block)
		low, high = min(low, r), max(high, r)
	}
	for _, p := range ports {
		switch {
		case strings.HasPrefix(p.Port, "host"):
			add(p.Rx, hosts-1)
			add(p.Tx, 1)
		case p.Port == "spine1": // the top
			add(p.Tx, hosts)
			add(p.Rx, 2) // hosts of a leaf
		}
	}
	return low, high
}

// Lost contributions and results are sent again.
func TestReduceLoss(t *testing.T) {
	perf, c := runPerf(t, "--topology fat-tree:4,2,2 --rate 500mbit --inc --loss 2% --duplicate 2%",
		"perf allreduce --json --algo inc -b 2M -n 3 -w 0")
	sums, _ := perf["inc_sums"].(float64)
	if perf["algo"] != "inc" || perf["wrong"] != 0.0 || c.Lost == 0 || sums == 0 {
		t.Errorf("%d packets lost: %v", c.Lost, perf)
	}
}

// Both operations at once, against two rings.
func TestReducePair(t *testing.T) {
	o := clitest.Finish(t, prepare(t, "run", "--topology star:4 --rate 500mbit --inc --json", strings.Fields(
		"allcast perf allgather+reduce-scatter --algo mcast+inc,ring+ring -b 256K -n 2 -w 0 --json")...))
	leftNothing(t)
	if o.Status != cli.StatusOK {
		t.Fatalf("status %d\n%s\n%s", o.Status, o.Stdout, o.Stderr)
	}
	var algos []any
	for line := range strings.Lines(o.Stdout) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l["op"] != nil {
			algos = append(algos, l["algo"])
			if l["wrong"] != 0.0 || l["fallback_reason"] != "" {
				t.Errorf("%v", l)
			}
		}
	}
	if fmt.Sprint(algos) != "[mcast+inc ring+ring]" {
		t.Errorf("ran %v", algos)
	}
}

// Aggregators end with the lab, also if it is killed.
func TestAggregatorsEnd(t *testing.T) {
	cmd := prepare(t, "run", "--topology fat-tree:4,2,2 --inc", sleeper...)
	cmd.Dir = t.TempDir()
	startRanks(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if o := clitest.Finish(t, prepare(t, "down", "")); o.Status != cli.StatusOK {
		t.Errorf("down: status %d, %s", o.Status, o.Stderr)
	}
	leftNothing(t)

	if o := clitest.Finish(t, prepare(t, "up", "--topology star:2 --inc")); o.Status != cli.StatusOK {
		t.Fatalf("up: status %d, %s", o.Status, o.Stderr)
	}
	o := clitest.Finish(t, prepare(t, "exec", "host1", "sh", "-c",
		"echo $ALLCAST_AGGREGATORS; wc -l <$ALLCAST_SITE_KEY_FILE"))
	if o.Status != cli.StatusOK || o.Stdout != "192.168.0.1:7900=0-1\n1\n" {
		t.Errorf("exec: status %d, %q", o.Status, o.Stdout)
	}
	if o := clitest.Finish(t, prepare(t, "down", "")); o.Status != cli.StatusOK {
		t.Errorf("down: status %d, %s", o.Status, o.Stderr)
	}
	leftNothing(t)
}
