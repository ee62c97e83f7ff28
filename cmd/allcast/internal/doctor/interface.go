package doctor

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/fabric/ip"
)

// interfaceFindings checks every interface that is up.
func interfaceFindings() []finding {
	all, err := net.Interfaces()
	if err != nil {
		return []finding{missing("interfaces", err.Error(), "allow netlink sockets")}
	}
	var findings []finding
	network := false
	for i := range all {
		if all[i].Flags&net.FlagUp == 0 {
			continue
		}
		f := interfaceFinding(&all[i])
		network = network || f.Status == statusOK && all[i].Flags&net.FlagLoopback == 0
		findings = append(findings, f)
	}
	if !network {
		findings = append(findings, warn("network",
			"no interface to other machines supports multicast: it works only between ranks on this machine",
			"bring up an interface with an address, or let a container use the network of its host"))
	}
	return findings
}

func interfaceFinding(ifi *net.Interface) finding {
	check := "interface " + ifi.Name
	addrs := addresses(ifi)
	detail := fmt.Sprintf("%v, MTU %d", ifi.Flags, ifi.MTU)
	if len(addrs) == 0 {
		return warn(check, detail+", no address", "give it an address, or ignore it: it is not used")
	}
	v6 := addrs[0].Is6()
	list := strings.Trim(fmt.Sprint(addrs), "[]")
	detail += fmt.Sprintf(", %s, chunk %d", list, ip.MaxPayload(ifi.MTU, v6))
	if ifi.Flags&net.FlagLoopback != 0 {
		return ok(check, detail)
	}
	if ifi.Flags&net.FlagMulticast == 0 {
		return warn(check, detail+": no multicast", "ip link set "+ifi.Name+" multicast on")
	}
	// With a TTL of 1, nothing leaves the local network.
	m, err := ip.OpenMulticast(ip.McastConfig{
		Interface: ifi, Local: addrs[0], Groups: ip.GroupsFor(rand.Uint64(), 1, v6), TTL: 1,
	})
	if err != nil {
		return warn(check, fmt.Sprintf("%s: %v", detail, err),
			"look for a firewall that drops UDP to 239.192.0.0/14 (IPv6: ff15::/16) or IGMP")
	}
	_ = m.Close()
	return ok(check, detail+"; run \"allcast perf\" across machines to see whether they receive it")
}

// findInterface returns the first interface that matches, or nil.
func findInterface(match func(*net.Interface) bool) (*net.Interface, error) {
	all, err := net.Interfaces()
	i := slices.IndexFunc(all, func(ifi net.Interface) bool { return match(&ifi) })
	if i < 0 {
		return nil, err
	}
	return &all[i], nil
}

// addresses lists the addresses that ranks could use, IPv4 first.
func addresses(ifi *net.Interface) (addrs []netip.Addr) {
	list, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			addrs = append(addrs, p.Addr())
		}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return addrs
}
