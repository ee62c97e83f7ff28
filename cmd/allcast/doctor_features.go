package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/allcast/allcast/internal/fabric/ip"
)

// featureFindings are what the sockets found out about the kernel.
func featureFindings(f ip.Features) []finding {
	return []finding{
		bufferFinding(f),
		onOff("GSO (UDP_SEGMENT)", f.GSO, "many datagrams leave in one call", f.GSOReason, "Linux 4.18 or later; without it sending costs more processor time"),
		onOff("GRO (UDP_GRO)", f.GRO, "many datagrams arrive in one call", f.GROReason, "Linux 5.0 or later; without it receiving costs more processor time"),
		onOff("socket filter", f.Filter, "the kernel keeps our own datagrams out of our queue", f.FilterReason, "allow SO_ATTACH_FILTER; without it a sender's own datagrams take room in its queue"),
	}
}

func bufferFinding(f ip.Features) finding {
	const check = "receive buffer"
	double := ""
	if f.Sockets == "linux" {
		double = " (which Linux counts double)"
	}
	detail := fmt.Sprintf("wanted %d bytes%s, got %d", f.RecvBufferWanted, double, f.RecvBufferGot)
	if limit, ok := sysctl("net/core/rmem_max"); ok {
		detail += fmt.Sprintf(", net.core.rmem_max is %d", limit)
	}
	switch {
	case f.RecvBufferForced:
		return finding{check, findingOK, detail + ", forced (CAP_NET_ADMIN)", ""}
	case f.RecvBufferClamped():
		return finding{
			check, findingWarn, detail + ": senders wait for receivers more often",
			fmt.Sprintf("sudo sysctl -w net.core.rmem_max=%d, and in /etc/sysctl.d to keep it", f.RecvBufferWanted),
		}
	}
	return finding{check, findingOK, detail, ""}
}

// sysctl reads a number of Linux's.
func sysctl(name string) (int, bool) {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}
