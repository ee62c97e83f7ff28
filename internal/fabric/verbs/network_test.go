//go:build verbs

package verbs_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// needGuest skips a test outside of the guest, since the test reconfigures the machine.
func needGuest(t *testing.T) {
	t.Helper()
	if os.Getenv("ALLCAST_VERBS_GUEST") == "" {
		t.Skip("needs Soft-RoCE on a machine of its own: make test-verbs")
	}
}

// mtu leaves room for the largest MTU of verbs, 4096, with all headers.
const mtu = 4200

// dummyNet makes a device rxe0 on a network without other machines.
func dummyNet(t *testing.T) (devices string) {
	t.Helper()
	needGuest(t)
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "alone0", MTU: mtu}}
	must(t, netlink.LinkAdd(link))
	t.Cleanup(func() { must(t, netlink.LinkDel(link)) })
	address(t, "alone0", "10.9.0.1/24")
	rxe(t, "rxe0", "alone0")
	return "rxe0:1"
}

// vethNet makes rxe0 and rxe1 at the ends of a link that loses a part of all packets. Soft-RoCE does not
// support namespaces, so both ends are on this machine. The system must therefore send to its own
// addresses over the link, and accept such packets.
func vethNet(t *testing.T, loss float32) (devices string) {
	t.Helper()
	needGuest(t)
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0", MTU: mtu}, PeerName: "veth1"}
	must(t, netlink.LinkAdd(link))
	t.Cleanup(func() { must(t, netlink.LinkDel(link)) })
	end, err := netlink.LinkByName("veth1")
	must(t, err)
	must(t, netlink.LinkSetMTU(end, mtu))
	for _, name := range []string{"all", "veth0", "veth1"} {
		sysctl(t, "net/ipv4/conf/"+name+"/accept_local", "1")
		sysctl(t, "net/ipv4/conf/"+name+"/rp_filter", "0")
	}
	address(t, "veth0", "10.8.0.1/24")
	address(t, "veth1", "10.8.0.2/24")
	rxe(t, "rxe0", "veth0")
	rxe(t, "rxe1", "veth1")
	if loss > 0 {
		for _, name := range []string{"veth0", "veth1"} {
			l, err := netlink.LinkByName(name)
			must(t, err)
			must(t, netlink.QdiscAdd(netlink.NewNetem(netlink.QdiscAttrs{
				LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
			}, netlink.NetemQdiscAttrs{Loss: loss})))
		}
	}
	return "rxe0:1,rxe1:1"
}

func rxe(t *testing.T, name, on string) {
	t.Helper()
	must(t, netlink.RdmaLinkAdd(name, "rxe", on))
	t.Cleanup(func() {
		if err := netlink.RdmaLinkDel(name); err != nil && !errors.Is(err, syscall.ENODEV) {
			t.Error(err)
		}
	})
}

func address(t *testing.T, name, cidr string) {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	must(t, netlink.AddrAdd(l, a))
	must(t, netlink.LinkSetUp(l))
}

func sysctl(t *testing.T, name, value string) {
	t.Helper()
	must(t, os.WriteFile("/proc/sys/"+name, []byte(value), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
