//go:build verbs

package verbs

// #include "shim.h"
// #include <stdlib.h>
import "C"

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A group is a multicast group that was joined.
//
// On RoCE v2 its GID is the IPv4 address, mapped to IPv6. The network forwards the group by IGMP, so
// the interface joins the address with a socket, as any program does. On InfiniBand the subnet manager
// makes the group at the request of rdma_cm, which maps the address to a GID and learns the group's LID
// and key.
type group struct {
	addr     netip.Addr
	at       groupAddress      // its changes are guarded by sender.mu
	socket   int               // -1: none
	cm       C.struct_ac_group // of rdma_cm, which changes its address whenever it joins
	keeper   *keeper           // nil: none is needed
	attached bool
}

// joinTimeout is how long the subnet manager may take to answer.
const joinTimeout = 5000 // ms

func join(d *Device, cfg *McastConfig, addr netip.Addr) (*group, error) {
	if !addr.Is4() || !addr.IsMulticast() {
		return nil, fmt.Errorf("verbs: %v is not an IPv4 multicast address", addr)
	}
	at := groupAddress{mgid: cGID(addr.As16()), qpn: 0xffffff, qkey: cu32(cfg.QKey)}
	g := &group{addr: addr, at: at, socket: -1}
	if d.attr.link == linkInfiniBand || cfg.CM {
		return g, g.joinCM(d)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		m := unix.IPMreqn{Multiaddr: addr.As4(), Ifindex: int32(d.gid.ifindex)}
		if err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &m); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return nil, d.errno(fmt.Sprintf("join %v on %s", addr, d.Interface()), err)
	}
	g.socket = fd
	return g, nil
}

func (g *group) joinCM(d *Device) error {
	local, err := d.address()
	if err != nil {
		return err
	}
	name := C.CString(d.name)
	defer C.free(unsafe.Pointer(name))
	if rc := C.ac_cm_join(ipv4(local), ipv4(g.addr), name, C.int(d.port), joinTimeout, &g.cm); rc != 0 {
		return d.failed(fmt.Sprintf("join %v through rdma_cm from %v", g.addr, local), int(rc))
	}
	g.at = g.cm.at
	return nil
}

func ipv4(a netip.Addr) C.uint32_t {
	b := a.As4()
	return C.uint32_t(binary.BigEndian.Uint32(b[:]))
}

// address is an IPv4 address of the port's network interface, by which rdma_cm identifies the port.
func (d *Device) address() (netip.Addr, error) {
	if a := goGID(d.gid.raw); a.Is4In6() {
		return a.Unmap(), nil
	}
	return d.ipoib()
}

// ipoib finds the IPv4 address of an InfiniBand port: that of an IPoIB interface of the
// same device and port.
func (d *Device) ipoib() (netip.Addr, error) {
	dirs, _ := filepath.Glob(filepath.Join("/sys/class/infiniband", d.name, "device/net/*")) // a correct pattern
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
		addrs, _ := ifi.Addrs() // without addresses, another interface may have one
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return p.Addr(), nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("%w: %v has no IPoIB interface with an IPv4 address, by which "+
		"multicast groups are joined: load ib_ipoib and give it one", ErrPort, d)
}

// attaches reports whether queue pairs attach to a group. Tests replace it.
var attaches = func(netip.Addr) bool { return true }

func (g *group) attach(d *Device, q *udQP) error {
	if !attaches(g.addr) {
		return nil
	}
	if rc := C.ac_attach(q.qp, &g.at, 1); rc != 0 {
		return d.failed(fmt.Sprintf("attach to %v", g.addr), int(rc))
	}
	g.attached = true
	return nil
}

func (g *group) detach(q *udQP) {
	if g.attached {
		C.ac_attach(q.qp, &g.at, 0) // destroying the queue pair would detach it, too
		g.attached = false
	}
}

func (g *group) leave() {
	if g.socket >= 0 {
		_ = unix.Close(g.socket)
	}
	C.ac_cm_leave(&g.cm)
}
