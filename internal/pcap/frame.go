package pcap

import (
	"encoding/binary"
	"hash/crc32"
)

// The offsets of the headers in Writer.headers, and their sizes.
const (
	etherAt = recordHeaderLen
	ipAt    = etherAt + 14
	udpAt   = ipAt + 20
	bthAt   = udpAt + 8

	maxHeaders = bthAt + 12 + 16 // the longest: BTH and RETH
	maxTrailer = 3 + icrcLen     // padding to a multiple of 4, and the ICRC
	icrcLen    = 4
)

const (
	rocePort  = 4791
	entropy   = 0xc000            // RoCE v2 source ports start here
	hostMask  = 1<<20 - 1         // host numbers past it wrap round
	groupMask = 1<<18 - 1         // and group numbers past this
	groupBase = 239<<24 | 192<<16 // 239.192.0.0/14: multicast within one organisation
)

// An address is a station's MAC and IPv4 address.
type address struct {
	mac uint64
	ip  uint32
}

// hostAddress gives host 0 10.0.0.1, since 10.0.0.0 is the network itself. The
// MAC is a locally administered one, 02:00, followed by the IP address.
func hostAddress(host int) address {
	ip := 10<<24 | (uint32(host)&hostMask + 1)
	return address{mac: 0x0200<<32 | uint64(ip), ip: ip}
}

// groupAddress maps the group's address to a MAC as RFC 1112 does. The 18 bits
// of a group number fit in the 23 that the MAC keeps: no two groups share one.
func groupAddress(group int) address {
	ip := groupBase | uint32(group)&groupMask
	return address{mac: 0x01005e000000 | uint64(ip&0x7fffff), ip: ip}
}

// packet completes the headers in h, which transport has begun, and records the
// packet. The payload is at most MTU bytes.
func (w *Writer) packet(at int64, src, dst address, h, payload []byte) {
	pad := -len(payload) & 3
	h[bthAt+1] |= byte(pad << 4)
	network(h, src, dst, len(h)-ipAt+len(payload)+pad+icrcLen)

	trailer := w.trailer[:pad+icrcLen]
	clear(trailer)
	binary.LittleEndian.PutUint32(trailer[pad:], w.icrc(h, payload, trailer[:pad]))
	w.record(at, h, payload, trailer)
}

// network fills in the Ethernet, IPv4 and UDP headers of h.
func network(h []byte, src, dst address, ipLen int) {
	be := binary.BigEndian
	be.PutUint64(h[etherAt:], dst.mac<<16|src.mac>>32)
	be.PutUint32(h[etherAt+8:], uint32(src.mac))
	be.PutUint16(h[etherAt+12:], 0x0800) // IPv4

	ip := h[ipAt:udpAt]
	be.PutUint32(ip[0:], 0x4500<<16|uint32(ipLen)) // no options
	be.PutUint32(ip[4:], 0x4000)                   // DF: RoCE is never fragmented, so needs no ID either
	be.PutUint32(ip[8:], 64<<24|17<<16)            // TTL, UDP, checksum still 0
	be.PutUint32(ip[12:], src.ip)
	be.PutUint32(ip[16:], dst.ip)
	be.PutUint16(ip[10:], checksum(ip))

	// The source port differs between flows for switches to spread them over
	// equal paths. RoCE v2 leaves the UDP checksum 0: the ICRC covers more.
	udp := h[udpAt:bthAt]
	be.PutUint16(udp[0:], entropy|uint16(src.ip*31+dst.ip)&^entropy)
	be.PutUint16(udp[2:], rocePort)
	be.PutUint32(udp[4:], uint32(ipLen-(udpAt-ipAt))<<16)
}

// checksum is the Internet checksum (RFC 1071) of b, of even length.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 0; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	sum = sum&0xffff + sum>>16
	return ^uint16(sum + sum>>16)
}

// icrc is the invariant CRC: Ethernet's CRC from the IP header on. All fields that a switch may
// change count as ones, and so do the 8 bytes of link header that InfiniBand would have in front.
func (w *Writer) icrc(h, payload, padding []byte) uint32 {
	const lrhAt = ipAt - 8
	m := w.masked[:copy(w.masked[:], h)]
	ones := func(from, to int) {
		for i := from; i < to; i++ {
			m[i] = 0xff
		}
	}
	ones(lrhAt, ipAt)
	ones(ipAt+1, ipAt+2)   // TOS
	ones(ipAt+8, ipAt+9)   // TTL
	ones(ipAt+10, ipAt+12) // IP checksum
	ones(udpAt+6, udpAt+8) // UDP checksum
	ones(bthAt+4, bthAt+5) // congestion marks

	crc := crc32.ChecksumIEEE(m[lrhAt:])
	crc = crc32.Update(crc, crc32.IEEETable, payload)
	return crc32.Update(crc, crc32.IEEETable, padding)
}
