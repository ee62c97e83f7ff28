package perf

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// Without the privilege to load programs, bpf says what is missing, and auto falls back.
func TestUnprivileged(t *testing.T) {
	args := strings.Fields("perf broadcast --ranks 2 --algo mcast -b 64K -n 2 --json --datapath")
	o := clitest.Finish(t, clitest.Unprivileged(t, append(args, "bpf")...))
	if o.Status != cli.StatusFailed || !strings.Contains(o.Stderr, "CAP_BPF") ||
		!strings.Contains(o.Stderr, "CAP_PERFMON") || o.Stdout != "" {
		t.Errorf("bpf: status %d, %s%s", o.Status, o.Stdout, o.Stderr)
	}
	o = clitest.Finish(t, clitest.Unprivileged(t, append(args, "auto")...))
	if o.Status != cli.StatusOK {
		t.Fatalf("auto: status %d, %s%s", o.Status, o.Stdout, o.Stderr)
	}
	l := o.Objects(t)[0]
	if why, _ := l["fallback_reason"].(string); l["datapath"] != "host" || l["hook"] != "" || l["algo"] != "mcast" ||
		l["wrong"] != 0.0 || !strings.Contains(why, "CAP_BPF") {
		t.Errorf("auto: %v", l)
	}
}

// The capabilities in the messages are sufficient, and one less is not.
func TestCapabilities(t *testing.T) {
	clitest.NeedBPF(t, bpf.TCX)
	for _, c := range []struct {
		hook, caps string
		enough     bool
	}{
		{"sockfilter", "+bpf,+perfmon", true},
		{"sockfilter", "+bpf", false},
		{"tcx", "+bpf,+perfmon,+net_admin", true},
		{"tcx", "+bpf,+perfmon", false},
	} {
		args := strings.Fields("perf broadcast --ranks 2 --algo mcast -b 64K -n 2 --json --datapath bpf --hook " + c.hook)
		o := clitest.Finish(t, clitest.Capable(t, c.caps, args...))
		if c.enough && (o.Status != cli.StatusOK || o.Objects(t)[0]["hook"] != c.hook) {
			t.Errorf("%s with %s: status %d, %s%s", c.hook, c.caps, o.Status, o.Stdout, o.Stderr)
		}
		if !c.enough && (o.Status != cli.StatusFailed || !strings.Contains(o.Stderr, "CAP_BPF") ||
			!strings.Contains(o.Stderr, "CAP_PERFMON")) {
			t.Errorf("%s with %s: status %d, %s%s", c.hook, c.caps, o.Status, o.Stdout, o.Stderr)
		}
		// With "auto", multicast works all the same.
		if !c.enough {
			args[len(args)-3] = "auto"
			o := clitest.Finish(t, clitest.Capable(t, c.caps, args...))
			if l := o.Objects(t); o.Status != cli.StatusOK || l[0]["datapath"] != "host" || l[0]["algo"] != "mcast" ||
				l[0]["fallback_reason"] == "" {
				t.Errorf("%s with %s, auto: status %d, %s%s", c.hook, c.caps, o.Status, o.Stdout, o.Stderr)
			}
		}
	}
}

// The table names the datapath that received the data.
func TestDatapathTable(t *testing.T) {
	clitest.NeedBPF(t, bpf.SockFilter)
	o := clitest.Finish(t, clitest.Process(t,
		strings.Fields("perf allgather --ranks 2 --algo mcast -b 64K -n 2 --datapath bpf")...))
	if o.Status != cli.StatusOK || !strings.Contains(o.Stdout, "datapath bpf (sockfilter)") {
		t.Errorf("status %d, %s%s", o.Status, o.Stdout, o.Stderr)
	}
	if strings.Contains(o.Stderr, "WARN") {
		t.Error(o.Stderr)
	}
}
