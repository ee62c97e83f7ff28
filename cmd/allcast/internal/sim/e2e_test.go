package sim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/sim"
)

// one runs a real simulation with --json and returns its result.
func one(t *testing.T, status int, args string) map[string]any {
	t.Helper()
	o := command(args + " --json")
	lines := o.Objects(t)
	if o.Status != status || len(lines) != 1 {
		t.Fatalf("allcast %s: status %d and %d lines, want %d and 1\n%s", args, o.Status, len(lines), status, o.Stderr)
	}
	return lines[0]
}

func TestRealClean(t *testing.T) {
	for _, op := range []string{"broadcast", "allgather"} {
		r := one(t, cli.StatusOK, "sim "+op+" --topology fat-tree:16,4,2 --bytes 100001")
		if r["verified"] != true || r["algo"] != "mcast" || r["nodes"] != 16.0 || r["max_crossings"] != 1.0 ||
			r["repaired_chunks"] != 0.0 {
			t.Errorf("%s: %v", op, r)
		}
	}
}

// Every operation runs, with all its algorithms and with auto, also if packets are lost.
func TestRealOperations(t *testing.T) {
	for op := range operations {
		algos := strings.Join(sim.Algorithms[op], ",")
		if !strings.Contains(op, "+") {
			algos += ",auto"
		}
		args := "sim " + op + " --topology star:6 --algo " + algos + " --loss-all 5% --json"
		if op != "barrier" {
			args += " --bytes 70001"
		}
		o := command(args)
		lines := o.Objects(t)
		if o.Status != cli.StatusOK || len(lines) != 1+strings.Count(algos, ",") {
			t.Errorf("allcast %s: status %d, %d lines\n%s", args, o.Status, len(lines), o.Stderr)
		}
		for _, l := range lines {
			if l["op"] != op || l["verified"] != true || l["time_us"].(float64) < l["bound_us"].(float64) {
				t.Errorf("allcast %s: %v", args, l)
			}
		}
	}
}

func TestRealLossy(t *testing.T) {
	for seed := 1; seed <= 5; seed++ {
		r := one(t, cli.StatusOK, fmt.Sprintf("sim allgather --topology star:13 --chains 4 --subgroups 3 --bytes 100001 "+
			"--loss 1%% --reorder 5%% --duplicate 1%% --seed %d", seed))
		if r["verified"] != true || r["chains"] != 4.0 || r["subgroups"] != 3.0 || r["seed"] != float64(seed) {
			t.Errorf("seed %d: %v", seed, r)
		}
	}
}

// The same seed gives the same line, except wall_ms. Another seed gives another line.
func TestRealDeterminism(t *testing.T) {
	line := func(seed int) string {
		r := one(t, cli.StatusOK, fmt.Sprintf(
			"sim allgather --topology star:8 --bytes 256K --loss 2%% --noise 1us --seed %d", seed))
		delete(r, "wall_ms")
		delete(r, "seed")
		return fmt.Sprint(r)
	}
	if a, b := line(7), line(7); a != b {
		t.Errorf("seed 7 twice:\n%s\n%s", a, b)
	}
	if a, b := line(7), line(8); a == b {
		t.Errorf("seeds 7 and 8 do the same:\n%s", a)
	}
}

func TestRealCrash(t *testing.T) {
	r := one(t, cli.StatusFailed, "sim allgather --topology star:8 --bytes 1M --crash 5@100us")
	errs, _ := r["errors"].([]any)
	if len(errs) == 0 {
		t.Fatalf("no errors: %v", r)
	}
	for _, e := range errs {
		if e := e.(map[string]any); e["culprit"] != 5.0 || e["rank"] == 5.0 {
			t.Errorf("%v: only rank 5 failed", e)
		}
	}
}

func TestRealVector(t *testing.T) {
	r := one(t, cli.StatusOK, "sim allgather --topology star:4 --counts 0,1,100001,4K --inplace")
	if r["verified"] != true {
		t.Errorf("%v", r)
	}
}

func TestRealPcap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pcap")
	one(t, cli.StatusOK, "sim broadcast --topology star:3 --bytes 64K --pcap "+path)
	// Payloads are truncated, so only the beginning identifies the format.
	capture, err := os.ReadFile(path)
	if magic := []byte{0x4d, 0x3c, 0xb2, 0xa1}; err != nil || !bytes.HasPrefix(capture, magic) || len(capture) < 1000 {
		t.Errorf("%d bytes that are no capture with nanoseconds: %v", len(capture), err)
	}
}

// TestRealDissection checks with tshark the captures of every operation, with each algorithm, losses, and chunks of one
// and of several packets.
func TestRealDissection(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not in PATH")
	}
	dir := t.TempDir()
	path, all := filepath.Join(dir, "x.pcap"), filepath.Join(dir, "all.pcap")
	const fileHeader = 24
	var captures []byte // all captures as one, because tshark is slow to start
	for op := range operations {
		for _, algo := range sim.Algorithms[op] {
			for _, chunk := range []string{"4K", "6000"} {
				args := "sim " + op + " --topology star:5 --algo " + algo + " --chunk " + chunk + " --loss-all 5% --pcap " + path
				if op != "barrier" {
					args += " --bytes 20001"
				}
				one(t, cli.StatusOK, args)
				capture, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if captures != nil {
					capture = capture[fileHeader:]
				}
				captures = append(captures, capture...)
			}
		}
	}
	if err := os.WriteFile(all, captures, 0o600); err != nil {
		t.Fatal(err)
	}
	dissect := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), tshark, append([]string{"-n", "-r", all}, args...)...)
		cmd.Env = append(os.Environ(), "WIRESHARK_CONFIG_DIR="+dir, "LC_ALL=C")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd, err)
		}
		return string(out)
	}
	if out := dissect("-Y", "_ws.malformed || _ws.short || _ws.expert"); out != "" {
		t.Errorf("tshark complains about:\n%s", out)
	}
	packets := 0
	for line := range strings.Lines(dissect()) {
		packets++
		if !strings.Contains(line, "RRoCE") || strings.Contains(line, "Malformed") {
			t.Errorf("packet of another protocol, or malformed: %s", line)
		}
	}
	t.Logf("%d packets", packets)
}
