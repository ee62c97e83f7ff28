package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// datapathFindings tries where the kernel can put received data in place.
func datapathFindings() []finding {
	network := networkInterface()
	var findings []finding
	for _, h := range bpf.Hooks {
		findings = append(findings, hookFinding(h, network, tryHook))
	}
	return findings
}

// networkInterface is the first one to other machines that ranks could use; nil: there is
// none.
func networkInterface() *net.Interface {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for i := range all {
		if f := all[i].Flags; f&net.FlagUp != 0 && f&net.FlagMulticast != 0 && f&net.FlagLoopback == 0 && len(addresses(&all[i])) > 0 {
			return &all[i]
		}
	}
	return nil
}

// hookFinding tries a hook. Programs that are the driver's are tried on interfaces without a
// device only: many drivers start again for them, and traffic stops meanwhile.
func hookFinding(h bpf.Hook, ifi *net.Interface, try func(bpf.Hook, *net.Interface) error) finding {
	check := "bpf datapath, " + string(h)
	perf := "sudo allcast perf broadcast --ranks 2 --datapath bpf --hook " + string(h)
	switch {
	case h == bpf.XDP && ifi == nil:
		return finding{check, findingMissing, "no interface to other machines to use it on", "none needed: --datapath host does the work, and the other hooks work on loopback"}
	case h == bpf.XDP && hasDevice(ifi):
		return finding{check, findingWarn, "not tried on " + ifi.Name + ": its driver may stop all traffic for a moment", "when that does no harm: " + perf}
	case ifi == nil:
		var err error
		if ifi, err = net.InterfaceByName("lo"); err != nil {
			return finding{check, findingMissing, err.Error(), "none needed: --datapath host does the work"}
		}
	}
	if err := try(h, ifi); err != nil {
		return finding{check, findingMissing, err.Error(), hookFix(h, err)}
	}
	return finding{check, findingOK, fmt.Sprintf("the kernel can put in place what is received on %s", ifi.Name), ""}
}

// hookFix says what to do.
func hookFix(h bpf.Hook, err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		caps := "cap_bpf,cap_perfmon"
		if h != bpf.SockFilter {
			caps += ",cap_net_admin"
		}
		return "run as root, or sudo setcap " + caps + "+ep PROGRAM; --datapath host does without"
	case errors.Is(err, syscall.EBUSY), errors.Is(err, fs.ErrExist):
		return "remove the program that is there (ip link show), or use --hook sockfilter"
	}
	return "none needed: --datapath host does the work"
}

func tryHook(h bpf.Hook, ifi *net.Interface) error {
	o, err := bpf.New(bpf.Config{Hook: h, Interface: ifi, Chunk: ip.MaxPayload(ifi.MTU, false)})
	if err != nil {
		return err
	}
	return o.Close()
}

// hasDevice reports whether there is a driver of a real or virtual card.
func hasDevice(ifi *net.Interface) bool {
	_, err := os.Stat("/sys/class/net/" + ifi.Name + "/device")
	return err == nil
}
