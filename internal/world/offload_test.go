package world

import (
	"net/netip"
	"testing"
)

// Ranks share a machine's packets if they have the same address. The zone and the port do not count.
func TestSharesAddress(t *testing.T) {
	for _, c := range []struct {
		local string
		addrs []string // rank 0 is this one
		want  bool
	}{
		{"10.0.0.1", []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:2"}, false},
		{"10.0.0.1", []string{"10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2"}, true},
		{"::ffff:10.0.0.1", []string{"10.0.0.1:1", "10.0.0.1:2"}, true},
		{"fe80::1%eth0", []string{"[fe80::1%eth0]:1", "[fe80::1%eth1]:1"}, true},
		{"10.0.0.1", []string{"10.0.0.1:1", "unknown"}, true},
	} {
		if got := sharesAddress(c.addrs, 0, netip.MustParseAddr(c.local)); got != c.want {
			t.Errorf("%s among %v: %v, want %v", c.local, c.addrs, got, c.want)
		}
	}
}
