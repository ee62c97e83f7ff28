package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/allcast/allcast/internal/settings"
)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// listenAddr returns the address at which the ranks of a job with a store can reach this rank: one of the
// interface that the settings name, or else of the one with the default route, or else of any. It is loopback if
// all ranks are on this machine.
func listenAddr(s *settings.Settings) (netip.Addr, error) {
	excluded, exclude := strings.CutPrefix(s.Interface, "^")
	if s.Size == 1 || (s.LocalSize == s.Size && s.Interface == "") {
		return loopback, nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%s: %w", noInterface, err)
	}
	way := defaultRoute()
	found := loopback
	for i := range all {
		ifi := &all[i]
		named := !exclude && ifi.Name == s.Interface
		if ifi.Flags&net.FlagUp == 0 || (exclude && ifi.Name == excluded) || (!exclude && s.Interface != "" && !named) ||
			(ifi.Flags&net.FlagLoopback != 0 && !named) {
			continue
		}
		addr, here := pick(ifi, way)
		if !addr.IsValid() && !here { // none of the IP version of the route
			if addr, _ = pick(ifi, netip.IPv6Unspecified()); !addr.IsValid() {
				continue
			}
		}
		switch {
		case here:
			return way, nil
		case named:
			return addr, nil
		case found.IsLoopback():
			found = addr
		}
	}
	if s.Interface != "" && !exclude {
		return netip.Addr{}, fmt.Errorf("%s: %q (Options.Interface, ALLCAST_IFNAME) does not exist, is down, "+
			"or has no address", noInterface, s.Interface)
	}
	return found, nil
}

// defaultRoute returns this machine's address towards other networks; 0.0.0.0 if it has no route to them. It sends
// no packet. The destinations are reserved for documentation.
func defaultRoute() netip.Addr {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		_ = conn.Close()
		if a, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			return a.AddrPort().Addr().Unmap()
		}
	}
	return netip.IPv4Unspecified()
}

// findHosts makes the traffic of a job with a store use loopback if all ranks are on one machine. At rank 0's
// address, that address decides.
func (j *joining) findHosts(ctx context.Context) error {
	j.towards = j.session.LocalAddr().Unmap()
	if j.Store == nil || j.Size == 1 {
		return nil
	}
	mine := ""
	if j.Interface == "" {
		mine = hostID()
	}
	one, err := fold(ctx, j.session, mine, func(hosts []string) (bool, error) {
		return hosts[0] != "" && !slices.ContainsFunc(hosts, func(h string) bool { return h != hosts[0] }), nil
	})
	if one {
		j.towards = loopback
	}
	return err
}

// hostID identifies this machine and its network namespace. It differs between containers that cannot reach each
// other by loopback.
func hostID() string {
	// What a system does not have is empty on all ranks of a machine.
	name, _ := os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/net")
	id := fmt.Sprintln(name, string(boot), namespace)
	all, _ := net.Interfaces()
	for _, ifi := range all {
		addrs, _ := ifi.Addrs()
		id += fmt.Sprintln(ifi.Name, ifi.HardwareAddr, addrs)
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}
