package doctor

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// kernelFindings check the limits of group membership.
func kernelFindings() []finding {
	const check = "IGMP"
	limit, ok := sysctl("net/ipv4/igmp_max_memberships")
	if !ok {
		return []finding{{
			check, statusWarn, "this system does not report its limits",
			"none needed as long as the interfaces above are ok",
		}}
	}
	detail := fmt.Sprintf("at most %d groups per socket (net.ipv4.igmp_max_memberships; one is needed, "+
		"and one more per open communicator that does not share it)", limit)
	if version, ok := sysctl("net/ipv4/conf/all/force_igmp_version"); ok && version != 0 {
		detail += fmt.Sprintf(", version %d forced", version)
	}
	if limit < 1 {
		return []finding{{check, statusWarn, detail, "sudo sysctl -w net.ipv4.igmp_max_memberships=20"}}
	}
	return []finding{{check, statusOK, detail + "; switches with IGMP snooping need a querier in the network", ""}}
}

// Capability bits, from linux/capability.h.
const (
	capNetAdmin = 12
	capPerfmon  = 38
	capBPF      = 39
)

// privilegeFindings check the capabilities of the process. All of them are optional.
func privilegeFindings() []finding {
	caps, ok := effectiveCapabilities()
	if !ok {
		return []finding{{"privileges", statusOK, "this system has no capabilities; none are needed", ""}}
	}
	one := func(name string, bit uint, use, fix string) finding {
		if caps>>bit&1 == 1 {
			return finding{name, statusOK, "present: " + use, ""}
		}
		return finding{name, statusMissing, "absent, and optional: " + use, fix}
	}
	return []finding{
		one("CAP_NET_ADMIN", capNetAdmin,
			"allows receive buffers above net.core.rmem_max; hooks tcx and xdp of --datapath bpf need it",
			"sudo setcap cap_net_admin+ep PROGRAM, or raise net.core.rmem_max"),
		one("CAP_BPF", capBPF, "--datapath bpf needs it",
			"sudo setcap cap_bpf,cap_perfmon+ep PROGRAM, or use --datapath host"),
		one("CAP_PERFMON", capPerfmon, "--datapath bpf needs it",
			"sudo setcap cap_bpf,cap_perfmon+ep PROGRAM, or use --datapath host"),
	}
}

func effectiveCapabilities() (uint64, bool) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if hex, ok := strings.CutPrefix(s.Text(), "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return caps, err == nil
		}
	}
	return 0, false
}
