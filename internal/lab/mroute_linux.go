package lab

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface for multicast routing daemons (linux/mroute.h). No maintained library
// covers it.
const (
	mrtInit   = 200 // MRT_INIT
	mrtAddVIF = 202 // MRT_ADD_VIF
	mrtAddMFC = 204 // MRT_ADD_MFC
	mrtDelMFC = 205 // MRT_DEL_MFC

	viffUseIfindex = 0x8 // VIFF_USE_IFINDEX

	siocGetVIFCnt = 0x89e0 // SIOCGETVIFCNT, SIOCPROTOPRIVATE
)

// mroute is a switch's multicast routing table; closing it empties the table.
type mroute struct{ fd int }

// openIGMP opens the socket for access to the multicast routing table of the calling thread's
// namespace.
func openIGMP() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_IGMP)
	return fd, annotate(err, "IGMP socket")
}

// newMroute becomes the namespace's multicast routing daemon.
func newMroute() (*mroute, error) {
	fd, err := openIGMP()
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, mrtInit, 1); err != nil {
		_ = unix.Close(fd) // the first error is the one to return
		return nil, fmt.Errorf("multicast routing (MRT_INIT; needs CONFIG_IP_MROUTE): %w", err)
	}
	return &mroute{fd}, nil
}

// addVIF makes an interface a port of the table.
func (m *mroute) addVIF(vif, ifindex int) error {
	var v [16]byte // struct vifctl
	binary.NativeEndian.PutUint16(v[0:], uint16(vif))
	v[2], v[3] = viffUseIfindex, 1 // flags; minimum TTL to forward
	binary.NativeEndian.PutUint32(v[8:], uint32(ifindex))
	err := unix.SetsockoptString(m.fd, unix.IPPROTO_IP, mrtAddVIF, string(v[:]))
	return annotate(err, "multicast interface %d (MRT_ADD_VIF)", vif)
}

// add adds an (S,G) entry, or replaces it.
func (m *mroute) add(e *Entry) error { return m.set(mrtAddMFC, "MRT_ADD_MFC", e) }

// remove removes an (S,G) entry.
func (m *mroute) remove(e *Entry) error { return m.set(mrtDelMFC, "MRT_DEL_MFC", e) }

func (m *mroute) set(option int, name string, e *Entry) error {
	var c [60]byte // struct mfcctl
	src, group := e.Source.As4(), e.Group.As4()
	copy(c[0:], src[:])
	copy(c[4:], group[:])
	binary.NativeEndian.PutUint16(c[8:], uint16(e.In))
	for _, vif := range e.Out {
		c[10+vif] = 1 // minimum TTL for this interface
	}
	err := unix.SetsockoptString(m.fd, unix.IPPROTO_IP, option, string(c[:]))
	return annotate(err, "multicast entry (%v,%v) (%s)", e.Source, e.Group, name)
}

// subscribe subscribes the socket to the reports of hosts that join groups at an interface. IGMPv3
// sends them to 224.0.0.22 (RFC 3376).
func (m *mroute) subscribe(ifindex int) error {
	mreq := unix.IPMreqn{Multiaddr: [4]byte{224, 0, 0, 22}, Ifindex: int32(ifindex)}
	err := unix.SetsockoptIPMreqn(m.fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &mreq)
	return annotate(err, "receive the reports of hosts that join groups")
}

// readVIF reads the counters of a multicast interface through any IGMP socket of its namespace.
func (c *Counting) readVIF(fd, vif int) error {
	var r struct { // struct sioc_vif_req
		vif                       uint16
		icount, ocount, inb, outb uintptr
	}
	r.vif = uint16(vif)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), siocGetVIFCnt, uintptr(unsafe.Pointer(&r))); errno != 0 {
		return fmt.Errorf("counters of multicast interface %d: %w", vif, errno)
	}
	// The kernel counts the IP and UDP headers of each datagram.
	payload := func(packets, bytes uintptr) uint64 { return uint64(bytes - min(bytes, packets*(20+8))) }
	c.McastRx, c.McastTx = payload(r.icount, r.inb), payload(r.ocount, r.outb)
	return nil
}
