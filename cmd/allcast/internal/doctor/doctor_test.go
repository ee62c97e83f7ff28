package doctor

import (
	"strings"
	"testing"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/cmd/allcast/internal/clitest"
	"github.com/allcast/allcast/internal/fabric/ip"
)

func TestDoctor(t *testing.T) {
	const key = "00112233445566778899aabbccddeeff"
	cmd := clitest.Process(t, "doctor", "--json")
	cmd.Env = append(cmd.Env, "ALLCAST_KEY="+key, "RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9999")
	o := clitest.Finish(t, cmd)
	found := map[string]map[string]any{}
	for _, l := range o.Objects(t) {
		found[l["check"].(string)] = l
		if s := l["status"]; s != statusOK && s != statusWarn && s != statusMissing || l["detail"] == "" {
			t.Errorf("%v", l)
		}
		if l["status"] != statusOK && l["fix"] == nil {
			t.Errorf("no fix: %v", l)
		}
	}
	for _, check := range []string{
		"multicast on loopback", "receive buffer", "interface lo", "IGMP",
		"bpf datapath, sockfilter", "bpf datapath, tcx", "bpf datapath, xdp", "CAP_BPF", "CAP_PERFMON", "verbs",
		"rank variables", "job key",
	} {
		if found[check] == nil {
			t.Errorf("nothing about %q", check)
		}
	}
	if o.Status != cli.StatusOK || found["multicast on loopback"]["status"] != statusOK {
		t.Errorf("status %d: %v", o.Status, found["multicast on loopback"])
	}
	if d := found["rank variables"]["detail"].(string); !strings.Contains(d, "rank 0 of 1") {
		t.Errorf("rank variables: %s", d)
	}
	if strings.Contains(o.Stdout+o.Stderr, key) || found["job key"]["status"] != statusOK {
		t.Errorf("job key: %v", found["job key"])
	}
}

func TestBufferFinding(t *testing.T) {
	f := ip.Features{Sockets: "linux", RecvBufferWanted: 8 << 20, RecvBufferGot: 425984}
	if got := bufferFinding(f); got.Status != statusWarn || !strings.Contains(got.Fix, "net.core.rmem_max=8388608") {
		t.Errorf("clamped: %+v", got)
	}
	f.RecvBufferGot = 16 << 20
	if got := bufferFinding(f); got.Status != statusOK {
		t.Errorf("as wanted: %+v", got)
	}
	f.RecvBufferForced = true
	if got := bufferFinding(f); got.Status != statusOK || !strings.Contains(got.Detail, "forced") {
		t.Errorf("forced: %+v", got)
	}
}
