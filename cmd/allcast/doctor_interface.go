package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/allcast/allcast/internal/fabric/ip"
)

// interfaceFindings looks at every interface that is up.
func interfaceFindings() []finding {
	all, err := net.Interfaces()
	if err != nil {
		return []finding{{"interfaces", findingMissing, err.Error(), "allow netlink sockets"}}
	}
	var findings []finding
	network := false
	for i := range all {
		if all[i].Flags&net.FlagUp == 0 {
			continue
		}
		f := interfaceFinding(&all[i])
		network = network || f.Status == findingOK && all[i].Flags&net.FlagLoopback == 0
		findings = append(findings, f)
	}
	if !network {
		findings = append(findings, finding{
			"network", findingWarn, "no interface to other machines that can multicast: only ranks on this machine can",
			"bring one up with an address, or let a container use the host's network",
		})
	}
	return findings
}

func interfaceFinding(ifi *net.Interface) finding {
	check := "interface " + ifi.Name
	addrs := addresses(ifi)
	detail := fmt.Sprintf("%v, MTU %d", ifi.Flags, ifi.MTU)
	if len(addrs) == 0 {
		return finding{check, findingWarn, detail + ", no address", "give it an address, or leave it: it is not used"}
	}
	var list []string
	for _, a := range addrs {
		list = append(list, a.String())
	}
	v6 := addrs[0].Is6()
	detail += fmt.Sprintf(", %s, chunk %d", strings.Join(list, " "), ip.MaxPayload(ifi.MTU, v6))
	if ifi.Flags&net.FlagLoopback != 0 {
		return finding{check, findingOK, detail, ""}
	}
	if ifi.Flags&net.FlagMulticast == 0 {
		return finding{check, findingWarn, detail + ": no multicast", "ip link set " + ifi.Name + " multicast on"}
	}
	// A TTL of 1: nothing of this leaves the local network.
	m, err := ip.OpenMulticast(ip.McastConfig{Interface: ifi, Local: addrs[0], Groups: ip.GroupsFor(randomWord(), 1, v6), TTL: 1})
	if err != nil {
		return finding{check, findingWarn, fmt.Sprintf("%s: %v", detail, err), "look for a firewall that drops UDP to 239.192.0.0/14 (IPv6: ff15::/16) or IGMP"}
	}
	_ = m.Close()
	return finding{check, findingOK, detail + "; whether other machines hear it, \"allcast perf\" across them tells", ""}
}

// addresses lists what ranks could use, IPv4 first.
func addresses(ifi *net.Interface) (v4 []netip.Addr) {
	var v6 []netip.Addr
	list, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil || p.Addr().IsLinkLocalUnicast():
		case p.Addr().Is4():
			v4 = append(v4, p.Addr())
		default:
			v6 = append(v6, p.Addr())
		}
	}
	return append(v4, v6...)
}
