package aggregate

import "github.com/allcast/allcast/internal/inc"

const (
	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
	align      = 8 // size of the largest element

	// MaxChunk is the largest payload. It fits a jumbo frame (an MTU of 9000) over IPv4. Loopback would take more,
	// but then few datagrams would fit a super-packet.
	MaxChunk = (9000 - ipv4Header - udpHeader - inc.HeaderSize) / align * align

	// maxTrain is the largest super-packet: the lengths in the IPv4 header and in the UDP header have 16 bits.
	maxTrain = 65535 - ipv4Header - udpHeader
	// maxSegments is UDP_MAX_SEGMENTS of kernels before 6.9; later kernels allow 128.
	maxSegments = 64
)

// MaxPayload is the largest payload, of at most MaxChunk, whose datagram fits a path MTU; 0 if none fits. It is a
// multiple of the size of every element.
func MaxPayload(mtu int, v6 bool) int {
	header := ipv4Header
	if v6 {
		header = ipv6Header
	}
	return max(0, min(MaxChunk, (mtu-header-udpHeader-inc.HeaderSize)/align*align))
}
