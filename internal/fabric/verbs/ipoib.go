//go:build verbs

package verbs

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ipoib finds the IPv4 address of an InfiniBand port: that of an IPoIB interface of the
// same device and port.
func (d *Device) ipoib() (netip.Addr, error) {
	dirs, err := filepath.Glob(filepath.Join("/sys/class/infiniband", d.name, "device/net/*"))
	if err != nil {
		return netip.Addr{}, err
	}
	for _, dir := range dirs {
		// dev_port counts from 0.
		b, err := os.ReadFile(filepath.Join(dir, "dev_port"))
		if n, perr := strconv.Atoi(strings.TrimSpace(string(b))); err != nil || perr != nil || n+1 != d.port {
			continue
		}
		ifi, err := net.InterfaceByName(filepath.Base(dir))
		if err != nil {
			continue
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return p.Addr(), nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: %v has no IPoIB interface with an IPv4 address, by which "+
		"multicast groups are joined: load ib_ipoib and give it one", ErrPort, d)
}
