package lab

import (
	"encoding/binary"
	"net/netip"
)

// IGMP messages of hosts that join and leave groups (RFC 2236, RFC 3376).
const (
	igmpReportV1 = 0x12
	igmpReportV2 = 0x16
	igmpReportV3 = 0x22
	igmpLeaveV2  = 0x17

	// Types of an IGMPv3 report's records.
	recordIsInclude  = 1
	recordIsExclude  = 2
	recordToInclude  = 3
	recordToExclude  = 4
	recordAllowNew   = 5
	protocolIGMP     = 2
	upcallNoCache    = 1 // IGMPMSG_NOCACHE of linux/mroute.h
	upcallSize       = 20
	igmpRecordHeader = 8
)

// parseUpcall parses the kernel's message that a datagram has no multicast route. The message
// takes the place of the IP header, with a protocol of 0 (struct igmpmsg).
func parseUpcall(b []byte) (source, group netip.Addr, ok bool) {
	if len(b) < upcallSize || b[9] != 0 || b[8] != upcallNoCache {
		return source, group, false
	}
	return netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), true
}

// parseReport parses the groups that a host joins and leaves from an IP packet.
func parseReport(b []byte) (host netip.Addr, joined, left []netip.Addr) {
	if len(b) < 20 || b[9] != protocolIGMP {
		return host, nil, nil
	}
	host = netip.AddrFrom4([4]byte(b[12:16]))
	head := int(b[0]&15) * 4
	if head < 20 || len(b) < head+8 {
		return host, nil, nil
	}
	m := b[head:]
	switch group := netip.AddrFrom4([4]byte(m[4:8])); m[0] {
	case igmpReportV1, igmpReportV2:
		joined = append(joined, group)
	case igmpLeaveV2:
		left = append(left, group)
	case igmpReportV3:
		joined, left = parseRecords(m[8:], int(binary.BigEndian.Uint16(m[6:8])))
	}
	return host, joined, left
}

func parseRecords(m []byte, n int) (joined, left []netip.Addr) {
	for range n {
		if len(m) < igmpRecordHeader {
			return joined, left
		}
		group := netip.AddrFrom4([4]byte(m[4:8]))
		sources := int(binary.BigEndian.Uint16(m[2:4]))
		switch kind := m[0]; {
		case kind == recordIsExclude, kind == recordToExclude,
			sources > 0 && (kind == recordIsInclude || kind == recordAllowNew):
			joined = append(joined, group)
		case sources == 0 && (kind == recordIsInclude || kind == recordToInclude):
			left = append(left, group)
		}
		size := igmpRecordHeader + 4*sources + 4*int(m[1])
		if len(m) < size {
			return joined, left
		}
		m = m[size:]
	}
	return joined, left
}
