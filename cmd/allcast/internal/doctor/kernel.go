package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/allcast/allcast/cmd/allcast/internal/cli"
	"github.com/allcast/allcast/internal/fabric/ip"
)

// kernelFindings check the limits of group membership.
func kernelFindings() []finding {
	const check = "IGMP"
	limit, known := sysctl("net/ipv4/igmp_max_memberships")
	if !known {
		return []finding{warn(check, "this system does not report its limits",
			"none needed as long as the interfaces above are ok")}
	}
	detail := fmt.Sprintf("at most %d groups per socket (net.ipv4.igmp_max_memberships; one is needed, "+
		"and one more per open communicator that does not share it)", limit)
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

// featureFindings report the kernel features that the sockets found.
func featureFindings(f ip.Features) []finding {
	return []finding{
		bufferFinding(f),
		onOff("GSO (UDP_SEGMENT)", f.GSO, "one call sends many datagrams", f.GSOReason,
			"Linux 4.18 or later; without it sending costs more processor time"),
		onOff("GRO (UDP_GRO)", f.GRO, "one call receives many datagrams", f.GROReason,
			"Linux 5.0 or later; without it receiving costs more processor time"),
		onOff("socket filter", f.Filter, "the kernel keeps a rank's own datagrams out of its receive queue", f.FilterReason,
			"allow SO_ATTACH_FILTER; without it a sender's own datagrams take room in its queue"),
	}
}

func bufferFinding(f ip.Features) finding {
	const check = "receive buffer"
	double := ""
	if f.Sockets == "linux" {
		double = " (Linux counts them twice)"
	}
	detail := fmt.Sprintf("wanted %d bytes%s, got %d", f.RecvBufferWanted, double, f.RecvBufferGot)
	if limit, known := sysctl("net/core/rmem_max"); known {
		detail += fmt.Sprintf(", net.core.rmem_max is %d", limit)
	}
	switch {
	case f.RecvBufferForced:
		return ok(check, detail+", forced (CAP_NET_ADMIN)")
	case f.RecvBufferClamped():
		return warn(check, detail+": senders wait for receivers more often",
			fmt.Sprintf("sudo sysctl -w net.core.rmem_max=%d; a file in /etc/sysctl.d makes it permanent", f.RecvBufferWanted))
	}
	return ok(check, detail)
}

// sysctl reads a numeric setting of Linux.
func sysctl(name string) (int, bool) {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}
