package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

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
		{bpf.SockFilter, nil, findingOK, ""},
		{bpf.TCX, nil, findingOK, ""},
		{bpf.XDP, nil, findingOK, ""}, // there is no device behind loopback
		{bpf.SockFilter, syscall.EPERM, findingMissing, "cap_bpf,cap_perfmon+ep"},
		{bpf.TCX, syscall.EACCES, findingMissing, "cap_bpf,cap_perfmon,cap_net_admin+ep"},
		{bpf.XDP, syscall.EBUSY, findingMissing, "--hook sockfilter"},
		{bpf.TCX, syscall.EEXIST, findingMissing, "--hook sockfilter"},
		{bpf.TCX, errors.ErrUnsupported, findingMissing, "--datapath host"},
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
		if f.Status != c.status || !strings.Contains(f.Fix, c.fix) || (f.Fix == "") != (c.fix == "") || !strings.Contains(f.Check, string(c.hook)) {
			t.Errorf("%s, %v: %+v", c.hook, c.err, f)
		}
	}
	never := func(bpf.Hook, *net.Interface) error { t.Error("tried"); return nil }
	if f := hookFinding(bpf.XDP, nil, never); f.Status != findingMissing || f.Fix == "" {
		t.Errorf("no interface: %+v", f)
	}
	if card := networkInterface(); card != nil && hasDevice(card) {
		if f := hookFinding(bpf.XDP, card, never); f.Status != findingWarn || !strings.Contains(f.Fix, "--hook xdp") {
			t.Errorf("a device: %+v", f)
		}
	}
	if f := hookFinding(bpf.TCX, nil, func(_ bpf.Hook, ifi *net.Interface) error {
		if ifi.Name != "lo" {
			t.Errorf("tried on %s", ifi.Name)
		}
		return nil
	}); f.Status != findingOK {
		t.Errorf("without a network: %+v", f)
	}
}

// What doctor says is what perf does.
func TestDoctorTruth(t *testing.T) {
	for _, f := range datapathFindings() {
		_, hook, _ := strings.Cut(f.Check, ", ")
		if hook == string(bpf.XDP) || f.Status != findingOK {
			continue
		}
		o := finish(t, process(t, "perf", "broadcast", "--ranks", "2", "--algo", "mcast", "-b", "4K", "-n", "1", "--json", "--datapath", "bpf", "--hook", hook))
		if o.status != statusOK || o.objects(t)[0]["hook"] != hook {
			t.Errorf("%s works, says doctor: status %d, %s%s", hook, o.status, o.stdout, o.stderr)
		}
	}
}

// Without privileges the kernel's datapath is missing, and it says what it needs.
func TestDoctorUnprivileged(t *testing.T) {
	found := map[string]map[string]any{}
	for _, l := range finish(t, unprivileged(t, "doctor", "--json")).objects(t) {
		found[l["check"].(string)] = l
	}
	for _, check := range []string{"bpf datapath, sockfilter", "bpf datapath, tcx", "CAP_BPF", "CAP_PERFMON"} {
		if f := found[check]; f["status"] != findingMissing || !strings.Contains(fmt.Sprint(f["fix"]), "setcap cap_bpf,cap_perfmon") {
			t.Errorf("%s: %v", check, f)
		}
	}
}
