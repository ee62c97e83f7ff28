//go:build verbs

package verbs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/allcast/allcast/internal/fabric/verbs"
)

// allcastCommand runs the command, and returns its status and output.
func allcastCommand(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	needGuest(t)
	var out, err bytes.Buffer
	c := exec.Command(os.Getenv("ALLCAST_COMMAND"), args...)
	c.Stdout, c.Stderr = &out, &err
	var exit *exec.ExitError
	if e := c.Run(); errors.As(e, &exit) {
		status = exit.ExitCode()
	} else {
		must(t, e)
	}
	return status, out.String(), err.String()
}

// perf runs allcast perf with --json, and checks every line.
func perf(t *testing.T, lines int, args ...string) {
	t.Helper()
	perf := []string{"perf", "--json", "--fabric", "verbs", "--ranks", "3"}
	status, out, err := allcastCommand(t, append(perf, args...)...)
	if status != 0 {
		t.Fatalf("%v: status %d:\n%s%s", args, status, out, err)
	}
	n := 0
	for line := range strings.Lines(out) {
		var r struct {
			Op, Algo, Fabric string
			Wrong            *int64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Fabric != "verbs" || r.Wrong == nil || *r.Wrong != 0 {
			t.Errorf("%v: %v: %s", args, err, line)
		}
		n++
	}
	if n != lines {
		t.Errorf("%v: %d lines, want %d:\n%s", args, n, lines, out)
	}
	t.Logf("%s", out)
}

// Point-to-point algorithms work over RC, with large pieces, which are registered, and small ones, which
// are copied.
func TestPerf(t *testing.T) {
	device := dummyNet(t)
	perf(t, 1, "broadcast", "--device", device, "--algo", "mcast", "-b", "100K", "-n", "2", "--integrity")
	perf(t, 5, "broadcast", "--device", device, "--algo", "binomial,knomial,binary,chain,scatter-allgather",
		"-b", "300000", "-n", "1")
	perf(t, 4, "allgather", "--device", device, "--algo", "ring,linear,recursive-doubling,bruck", "-b", "30000", "-n", "1")
	perf(t, 2, "reduce-scatter", "--device", device, "--algo", "ring,recursive-halving", "-b", "300000", "-n", "1")
}

func TestDoctor(t *testing.T) {
	dummyNet(t)
	_, out, _ := allcastCommand(t, "doctor", "--json")
	for line := range strings.Lines(out) {
		if strings.Contains(line, "rxe0:1") && strings.Contains(line, `"ok"`) {
			t.Log(line)
			return
		}
	}
	t.Errorf("no device rxe0:1:\n%s", out)
}

// Errors name the problem of a device, and say how to fix it.
func TestDeviceErrors(t *testing.T) {
	needGuest(t)
	fails := func(device string, want ...string) {
		t.Helper()
		args := []string{"perf", "broadcast", "--fabric", "verbs", "--ranks", "1", "-b", "1"}
		if device != "" {
			args = append(args, "--device", device)
		}
		status, out, err := allcastCommand(t, args...)
		for _, w := range want {
			if !strings.Contains(err, w) {
				t.Errorf("no %q in: %s", w, err)
			}
		}
		if status != 1 || out != "" {
			t.Errorf("status %d, %s", status, out)
		}
		t.Logf("%s", err)
	}
	fails("", "no verbs device", "rdma link add")
	dummyNet(t)
	fails("mlx5_0", "no verbs device", "mlx5_0", "there are rxe0")
	for name, want := range map[string]error{"rxe0:3": verbs.ErrPort, "rxe0:x": verbs.ErrPort, "rxe1": verbs.ErrNoDevice} {
		if _, err := verbs.Open(name, 0, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	link, err := netlink.LinkByName("alone0")
	must(t, err)
	must(t, netlink.LinkSetDown(link))
	fails("rxe0:1", "rxe0:1 is down")
}
