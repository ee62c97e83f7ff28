package main

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/internal/fabric/ip"
)

func TestDoctor(t *testing.T) {
	const key = "00112233445566778899aabbccddeeff"
	cmd := process(t, "doctor", "--json")
	cmd.Env = append(cmd.Env, "ALLCAST_KEY="+key, "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9999")
	o := finish(t, cmd)
	found := map[string]map[string]any{}
	for _, l := range o.objects(t) {
		found[l["check"].(string)] = l
		if s := l["status"]; s != findingOK && s != findingWarn && s != findingMissing || l["detail"] == "" {
			t.Errorf("%v", l)
		}
		if l["status"] != findingOK && l["fix"] == nil {
			t.Errorf("no way to mend it: %v", l)
		}
	}
	for _, check := range []string{"multicast on loopback", "receive buffer", "interface lo", "IGMP", "bpf datapath, sockfilter", "bpf datapath, tcx", "bpf datapath, xdp", "CAP_BPF", "CAP_PERFMON", "verbs", "rank variables", "job key"} {
		if found[check] == nil {
			t.Errorf("nothing about %q", check)
		}
	}
	if o.status != statusOK || found["multicast on loopback"]["status"] != findingOK {
		t.Errorf("status %d: %v", o.status, found["multicast on loopback"])
	}
	if d := found["rank variables"]["detail"].(string); !strings.Contains(d, "rank 1 of 2") {
		t.Errorf("rank variables: %s", d)
	}
	if strings.Contains(o.stdout+o.stderr, key) || found["job key"]["status"] != findingOK {
		t.Errorf("job key: %v", found["job key"])
	}
}

func TestDoctorTable(t *testing.T) {
	cmd := process(t, "doctor")
	cmd.Env = append(cmd.Env, "WORLD_SIZE=2", "ALLCAST_KEY=12")
	o := finish(t, cmd)
	for _, want := range []string{"bpf datapath", "RANK is not", "hex digits", "fix: "} {
		if o.status != statusOK || !strings.Contains(o.stdout, want) {
			t.Errorf("status %d, and nothing of %q:\n%s%s", o.status, want, o.stdout, o.stderr)
		}
	}
}

func TestBufferFinding(t *testing.T) {
	f := ip.Features{Sockets: "linux", RecvBufferWanted: 8 << 20, RecvBufferGot: 425984}
	if got := bufferFinding(f); got.Status != findingWarn || !strings.Contains(got.Fix, "net.core.rmem_max=8388608") {
		t.Errorf("clamped: %+v", got)
	}
	f.RecvBufferGot = 16 << 20
	if got := bufferFinding(f); got.Status != findingOK {
		t.Errorf("as wanted: %+v", got)
	}
	f.RecvBufferForced = true
	if got := bufferFinding(f); got.Status != findingOK || !strings.Contains(got.Detail, "forced") {
		t.Errorf("forced: %+v", got)
	}
}
