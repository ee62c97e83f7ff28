package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// unprivileged prepares a process without any capability.
func unprivileged(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		if caps, ok := effectiveCapabilities(); !ok || caps>>capBPF&1 == 1 {
			t.Skip("not root, but with CAP_BPF")
		}
		return process(t, args...)
	}
	return capable(t, "", args...)
}

// capable prepares a process with these capabilities only, as "+bpf,+perfmon". It needs root.
func capable(t *testing.T, caps string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give capabilities to others")
	}
	cmd := process(t, args...)
	caps = strings.TrimSuffix("-all,"+caps, ",")
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skipf("root, and no way to be less: %v", err)
	}
	// The test's own program may be where others cannot get at it.
	dir, err := os.MkdirTemp("", "allcast") //nolint:usetesting // that one is nobody else's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	program, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "allcast")
	if err := os.WriteFile(exe, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	less := exec.CommandContext(t.Context(), setpriv, append([]string{
		"--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=" + caps, "--inh-caps=" + caps, "--ambient-caps=" + caps, exe,
	}, args...)...)
	less.Env = append(cmd.Env, "XDG_RUNTIME_DIR=", "TMPDIR=/tmp")
	less.Dir = dir
	return less
}

// Who must not load programs hears what is missing, or gets along without.
func TestPerfUnprivileged(t *testing.T) {
	args := fields("perf broadcast --ranks 2 --algo mcast -b 64K -n 2 --json --datapath")
	o := finish(t, unprivileged(t, append(args, "bpf")...))
	if o.status != statusFailed || !strings.Contains(o.stderr, "CAP_BPF") || !strings.Contains(o.stderr, "CAP_PERFMON") || o.stdout != "" {
		t.Errorf("bpf: status %d, %s%s", o.status, o.stdout, o.stderr)
	}
	o = finish(t, unprivileged(t, append(args, "auto")...))
	if o.status != statusOK {
		t.Fatalf("auto: status %d, %s%s", o.status, o.stdout, o.stderr)
	}
	l := o.objects(t)[0]
	if why, _ := l["fallback_reason"].(string); l["datapath"] != "host" || l["hook"] != "" || l["algo"] != "mcast" || l["wrong"] != 0.0 || !strings.Contains(why, "CAP_BPF") {
		t.Errorf("auto: %v", l)
	}
}

// The capabilities that we name are enough, and one less is not.
func TestPerfCapabilities(t *testing.T) {
	if lo, err := net.InterfaceByName("lo"); err != nil || tryHook("tcx", lo) != nil {
		t.Skip("no eBPF here")
	}
	for _, c := range []struct {
		hook, caps string
		enough     bool
	}{
		{"sockfilter", "+bpf,+perfmon", true},
		{"sockfilter", "+bpf", false},
		{"tcx", "+bpf,+perfmon,+net_admin", true},
		{"tcx", "+bpf,+perfmon", false},
	} {
		args := fields("perf broadcast --ranks 2 --algo mcast -b 64K -n 2 --json --datapath bpf --hook " + c.hook)
		o := finish(t, capable(t, c.caps, args...))
		if c.enough && (o.status != statusOK || o.objects(t)[0]["hook"] != c.hook) {
			t.Errorf("%s with %s: status %d, %s%s", c.hook, c.caps, o.status, o.stdout, o.stderr)
		}
		if !c.enough && (o.status != statusFailed || !strings.Contains(o.stderr, "CAP_BPF") || !strings.Contains(o.stderr, "CAP_PERFMON")) {
			t.Errorf("%s with %s: status %d, %s%s", c.hook, c.caps, o.status, o.stdout, o.stderr)
		}
		// Nor does it break what works without: "auto" has multicast all the same.
		if !c.enough {
			args[len(args)-3] = "auto"
			o := finish(t, capable(t, c.caps, args...))
			if l := o.objects(t); o.status != statusOK || l[0]["datapath"] != "host" || l[0]["algo"] != "mcast" || l[0]["fallback_reason"] == "" {
				t.Errorf("%s with %s, auto: status %d, %s%s", c.hook, c.caps, o.status, o.stdout, o.stderr)
			}
		}
	}
}

// The environment asks for a datapath as the flag does, and is checked as it is.
func TestPerfDatapathEnvironment(t *testing.T) {
	for _, name := range []string{"RANK", "WORLD_SIZE"} {
		unset(t, name)
	}
	for _, c := range []struct{ datapath, hook, args, want string }{
		{"dpu", "", "", "valid: host, bpf, auto"},
		{"", "tcx", "", "--datapath bpf or auto"},
		{"bpf", "nic", "", "valid: sockfilter, tcx, xdp"},
		{"bpf", "", " --secure", "use --datapath host"},
		{"bpf", "tcx", " --datapath host", "--datapath bpf or auto"},
	} {
		t.Setenv("ALLCAST_DATAPATH", c.datapath)
		t.Setenv("ALLCAST_HOOK", c.hook)
		o := execute(t, fine, fields("perf barrier"+c.args)...)
		if o.status != statusUsage || !strings.Contains(o.stderr, c.want) || o.stdout != "" {
			t.Errorf("%+v: status %d, %s%s", c, o.status, o.stdout, o.stderr)
		}
	}
}

// What the table says of who received is true.
func TestPerfDatapathTable(t *testing.T) {
	if lo, err := net.InterfaceByName("lo"); err != nil || tryHook("sockfilter", lo) != nil {
		t.Skip("no eBPF here")
	}
	o := finish(t, process(t, fields("perf allgather --ranks 2 --algo mcast -b 64K -n 2 --datapath bpf")...))
	if o.status != statusOK || !strings.Contains(o.stdout, "datapath bpf (sockfilter)") {
		t.Errorf("status %d, %s%s", o.status, o.stdout, o.stderr)
	}
	if strings.Contains(o.stderr, "WARN") {
		t.Error(o.stderr)
	}
}
