package doctor

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/offload/bpf"
)

func TestHookFinding(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skipf("no loopback interface: %v", err)
	}
	for _, c := range []struct {
		hook        bpf.Hook
		err         error
		status, fix string
	}{
		{bpf.SockFilter, nil, statusOK, ""},
		{bpf.TCX, nil, statusOK, ""},
		{bpf.XDP, nil, statusOK, ""}, // there is no device behind loopback
		{bpf.SockFilter, syscall.EPERM, statusMissing, "cap_bpf,cap_perfmon+ep"},
		{bpf.TCX, syscall.EACCES, statusMissing, "cap_bpf,cap_perfmon,cap_net_admin+ep"},
		{bpf.XDP, syscall.EBUSY, statusMissing, "--hook sockfilter"},
		{bpf.TCX, syscall.EEXIST, statusMissing, "--hook sockfilter"},
		{bpf.TCX, errors.ErrUnsupported, statusMissing, "--datapath host"},
	} {
		f := hookFinding(c.hook, lo, func(h bpf.Hook, ifi *net.Interface) error {
			if h != c.hook || ifi != lo {
				t.Errorf("tried %s on %s", h, ifi.Name)
			}
			if c.err == nil {
				return nil
			}
			return fmt.Errorf("%w: %w", bpf.ErrUnavailable, c.err)
		})
		if f.Status != c.status || !strings.Contains(f.Fix, c.fix) || (f.Fix == "") != (c.fix == "") ||
			!strings.Contains(f.Check, string(c.hook)) {
			t.Errorf("%s, %v: %+v", c.hook, c.err, f)
		}
	}
	never := func(bpf.Hook, *net.Interface) error { t.Error("tried"); return nil }
	if f := hookFinding(bpf.XDP, nil, never); f.Status != statusMissing || f.Fix == "" {
		t.Errorf("no interface: %+v", f)
	}
	if card := networkInterface(); card != nil && hasDevice(card) {
		if f := hookFinding(bpf.XDP, card, never); f.Status != statusWarn || !strings.Contains(f.Fix, "--hook xdp") {
			t.Errorf("a device: %+v", f)
		}
	}
	if f := hookFinding(bpf.TCX, nil, func(_ bpf.Hook, ifi *net.Interface) error {
		if ifi.Name != "lo" {
			t.Errorf("tried on %s", ifi.Name)
		}
		return nil
	}); f.Status != statusOK {
		t.Errorf("without a network: %+v", f)
	}
}

// perf works with every hook that doctor calls ok.
func TestTruth(t *testing.T) {
	for _, f := range datapathFindings() {
		_, hook, _ := strings.Cut(f.Check, ", ")
		if hook == string(bpf.XDP) || f.Status != statusOK {
			continue
		}
		o := clitest.Finish(t, clitest.Process(t, "perf", "broadcast", "--ranks", "2", "--algo", "mcast", "-b", "4K", "-n",
			"1", "--json", "--datapath", "bpf", "--hook", hook))
		if o.Status != cli.StatusOK || o.Objects(t)[0]["hook"] != hook {
			t.Errorf("%s works, says doctor: status %d, %s%s", hook, o.Status, o.Stdout, o.Stderr)
		}
	}
}

// Without privileges the kernel's datapath is missing, and the fix names the capabilities.
func TestUnprivileged(t *testing.T) {
	found := map[string]map[string]any{}
	for _, l := range clitest.Finish(t, clitest.Unprivileged(t, "doctor", "--json")).Objects(t) {
		found[l["check"].(string)] = l
	}
	for _, check := range []string{"bpf datapath, sockfilter", "bpf datapath, tcx", "CAP_BPF", "CAP_PERFMON"} {
		if f := found[check]; f["status"] != statusMissing ||
			!strings.Contains(fmt.Sprint(f["fix"]), "setcap cap_bpf,cap_perfmon") {
			t.Errorf("%s: %v", check, f)
		}
	}
}
