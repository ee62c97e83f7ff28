package world

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

const noInterface = "no usable network interface"

// place finds the interface and this rank's address on it: the interface that the settings name, or else
// the one over which the rank has reached rank 0.
func (j *joining) place() error {
	all, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("%s: %w", noInterface, err)
	}
	excluded, exclude := strings.CutPrefix(j.Interface, "^")
	var names []string
	for i := range all {
		ifi := &all[i]
		names = append(names, ifi.Name)
		if ifi.Flags&net.FlagUp == 0 || (exclude && ifi.Name == excluded) ||
			(!exclude && j.Interface != "" && ifi.Name != j.Interface) {
			continue
		}
		addr, here := pick(ifi, j.towards)
		if here {
			j.ifi, j.local = ifi, addr
			return nil
		}
		// Only the settings can choose an interface that is not the way to rank 0.
		if first := j.ifi == nil && ifi.Flags&net.FlagLoopback == 0; addr.IsValid() && j.Interface != "" &&
			(first || ifi.Name == j.Interface) {
			j.ifi, j.local = ifi, addr
		}
	}
	switch {
	case j.ifi != nil:
		return nil
	case j.Interface != "":
		return fmt.Errorf("%s: %q (Options.Interface, ALLCAST_IFNAME) does not exist, is down, "+
			"or has no address of the right kind: want one of %s", noInterface, j.Interface, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s: none has the address %v, over which this rank has reached rank 0: "+
		"set ALLCAST_IFNAME to one of %s", noInterface, j.towards, strings.Join(names, ", "))
}

// pick returns an address of the interface with the IP version of want; here is true if it is want itself.
func pick(ifi *net.Interface, want netip.Addr) (addr netip.Addr, here bool) {
	list, err := ifi.Addrs()
	if err != nil {
		return netip.Addr{}, false
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		got := p.Addr().Unmap()
		if got.WithZone("") == want.WithZone("") {
			return want, true
		}
		// Any address of 127/8 is on the loopback interface.
		if want.IsLoopback() && got.IsLoopback() && got.Is4() == want.Is4() {
			return want, true
		}
		if !addr.IsValid() && got.Is4() == want.Is4() && !got.IsLinkLocalUnicast() {
			addr = got
		}
	}
	return addr, false
}
