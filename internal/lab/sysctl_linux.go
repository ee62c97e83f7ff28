package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

type sysctl struct{ key, value string }

// Settings are per namespace and apply to interfaces created later.
var (
	nodeSysctls = []sysctl{
		// Router solicitations, duplicate address detection and MLD reports would show up in the
		// counters.
		{"net.ipv6.conf.all.disable_ipv6", "1"},
		{"net.ipv6.conf.default.disable_ipv6", "1"},
		// Multicast may arrive over another spine than the unicast route to its source.
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.igmp_max_memberships", "128"},
		{"net.ipv4.igmp_link_local_mcast_reports", "0"},
	}
	switchSysctls = []sysctl{
		{"net.ipv4.ip_forward", "1"},
		// Layer 4: flows of the same two hosts spread over the spines.
		{"net.ipv4.fib_multipath_hash_policy", "1"},
		// As in any router, no route leads over a port without a carrier.
		{"net.ipv4.conf.all.ignore_routes_with_linkdown", "1"},
		{"net.ipv4.conf.default.ignore_routes_with_linkdown", "1"},
		{"net.ipv4.conf.all.send_redirects", "0"},
		{"net.ipv4.conf.default.send_redirects", "0"},
		// No rate limit for reports of unreachable destinations.
		{"net.ipv4.icmp_ratelimit", "0"},
	}
)

// setSysctls changes settings of the calling thread's namespace, which /proc/sys/net shows.
func setSysctls(list []sysctl) error {
	for _, s := range list {
		path := "/proc/sys/" + strings.ReplaceAll(s.key, ".", "/")
		err := os.WriteFile(path, []byte(s.value), 0o644)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(s.key, "net.ipv6.") {
			continue // the kernel has no IPv6 to turn off
		}
		if err != nil {
			return fmt.Errorf("%s=%s: %w", s.key, s.value, err)
		}
	}
	return nil
}
