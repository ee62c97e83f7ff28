package doctor

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/allcast/allcast/internal/fabric/ip"
	"github.com/allcast/allcast/internal/offload/bpf"
)

// datapathFindings tries the hooks at which the kernel can place received data.
func datapathFindings() []finding {
	network := networkInterface()
	var findings []finding
	for _, h := range bpf.Hooks {
		findings = append(findings, hookFinding(h, network, tryHook))
	}
	return findings
}

// networkInterface returns the first interface to other machines that ranks could use, or nil.
func networkInterface() *net.Interface {
	const want = net.FlagUp | net.FlagMulticast
	ifi, _ := findInterface(func(ifi *net.Interface) bool {
		return ifi.Flags&(want|net.FlagLoopback) == want && len(addresses(ifi)) > 0
	})
	return ifi
}

// hookFinding tries a hook. XDP programs run in the driver and are tried only on interfaces without a device: many
// drivers restart when they load one, which interrupts traffic.
func hookFinding(h bpf.Hook, ifi *net.Interface, try func(bpf.Hook, *net.Interface) error) finding {
	check := "bpf datapath, " + string(h)
	perf := "sudo allcast perf broadcast --ranks 2 --datapath bpf --hook " + string(h)
	switch {
	case h == bpf.XDP && ifi == nil:
		return missing(check, "no interface to other machines to use it on",
			"none needed: --datapath host works, and the other hooks work on loopback")
	case h == bpf.XDP && hasDevice(ifi):
		return warn(check, "not tried on "+ifi.Name+": its driver may stop all traffic for a moment",
			"when an interruption does no harm: "+perf)
	case ifi == nil:
		var err error
		if ifi, err = net.InterfaceByName("lo"); err != nil {
			return missing(check, err.Error(), "none needed: --datapath host works")
		}
	}
	if err := try(h, ifi); err != nil {
		return missing(check, err.Error(), hookFix(h, err))
	}
	return ok(check, "the kernel can place data received on "+ifi.Name)
}

// hookFix says what to do about a hook that does not work.
func hookFix(h bpf.Hook, err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		caps := "cap_bpf,cap_perfmon"
		if h != bpf.SockFilter {
			caps += ",cap_net_admin"
		}
		return "run as root, or sudo setcap " + caps + "+ep PROGRAM; --datapath host needs neither"
	case errors.Is(err, syscall.EBUSY), errors.Is(err, fs.ErrExist):
		return "remove the program that is attached (ip link show), or use --hook sockfilter"
	}
	return "none needed: --datapath host works"
}

func tryHook(h bpf.Hook, ifi *net.Interface) error {
	o, err := bpf.New(bpf.Config{Hook: h, Interface: ifi, Chunk: ip.MaxPayload(ifi.MTU, false)})
	if err != nil {
		return err
	}
	return o.Close()
}

// hasDevice reports whether the interface has a real or virtual network card.
func hasDevice(ifi *net.Interface) bool {
	_, err := os.Stat("/sys/class/net/" + ifi.Name + "/device")
	return err == nil
}
