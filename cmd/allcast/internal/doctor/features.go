package doctor

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/fabric/ip"
)

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
