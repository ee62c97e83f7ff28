package doctor

import (
	"fmt"
	"strconv"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
)

// kernelFindings check the limits of group membership.
func kernelFindings() []finding {
	const check = "IGMP"
	limit, known := sysctl("net/ipv4/igmp_max_memberships")
	if !known {
		return []finding{warn(check, "this system does not report its limits",
			"none needed as long as the interfaces above are ok")}
	}
	detail := fmt.Sprintf("at most %d groups per socket (net.ipv4.igmp_max_memberships; one is needed)", limit)
	if version, known := sysctl("net/ipv4/conf/all/force_igmp_version"); known && version != 0 {
		detail += fmt.Sprintf(", version %d forced", version)
	}
	if limit < 1 {
		return []finding{warn(check, detail, "sudo sysctl -w net.ipv4.igmp_max_memberships=20")}
	}
	return []finding{ok(check, detail+"; switches with IGMP snooping need a querier in the network")}
}

// Capability bits, from linux/capability.h.
const (
	capNetAdmin = 12
	capPerfmon  = 38
	capBPF      = 39
)

// privilegeFindings check the capabilities of the process. All of them are optional.
func privilegeFindings() []finding {
	hex, _ := cli.ProcField("/proc/self/status", "CapEff")
	caps, err := strconv.ParseUint(hex, 16, 64)
	if err != nil {
		return []finding{ok("privileges", "this system has no capabilities; none are needed")}
	}
	one := func(name string, bit uint, use, fix string) finding {
		if caps>>bit&1 == 1 {
			return ok(name, "present: "+use)
		}
		return missing(name, "absent, and optional: "+use, fix)
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
