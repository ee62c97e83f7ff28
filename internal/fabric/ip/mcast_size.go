package ip

import "github.com/allcast/allcast/internal/wire"

const (
	// MaxChunk is the largest payload of a datagram. It fits a jumbo frame (an MTU of 9000) over IPv4.
	// Loopback would take more, but then no two chunks would fit a super-packet.
	MaxChunk = 9000 - ipv4Header - udpHeader - wire.HeaderSize

	// MaxLong is the largest payload of several packets. It fits a super-packet that devices take whole.
	MaxLong = mcastMaxLong - wire.HeaderSize

	ipv4Header = 20
	ipv6Header = 40
	udpHeader  = 8
	ethernet   = 14 + 4 // header and checksum; neither preamble nor gap nor VLAN tag

	// The lengths in the IPv4 header and in the UDP header have 16 bits, and the kernel checks a
	// super-packet as if it were one datagram. IPv6 would have room for 20 more bytes, but one limit for
	// both versions keeps batches equal.
	mcastMaxSuper = 65535 - ipv4Header - udpHeader
	// A device takes super-packets of less than 64 KiB (gso_max_size), including its own header, such as
	// a tagged Ethernet header. The kernel splits a larger one first: a batch of chunks still arrives,
	// but a chunk of several packets does not arrive whole.
	mcastMaxLong = 65535 - 18 - ipv6Header - udpHeader
	// UDP_MAX_SEGMENTS of kernels before 6.9; later kernels allow 128.
	mcastMaxSegments = 64
	// Larger than any datagram or super-packet.
	mcastStage = 1 << 16
)

// MaxPayload is the largest chunk, of at most MaxChunk, whose datagram fits a path MTU; 0 if none fits.
// Checksums reduce it by wire.SumSize.
func MaxPayload(mtu int, v6 bool) int {
	return max(0, min(mtu-mcastIPHeader(v6)-udpHeader-wire.HeaderSize, MaxChunk))
}

func mcastIPHeader(v6 bool) int {
	if v6 {
		return ipv6Header
	}
	return ipv4Header
}

// mcastPut encodes a header to all of b.
func mcastPut(b []byte, h wire.Header) {
	if len(b) > wire.HeaderSize {
		h.PutSum(b)
	} else {
		h.Put(b)
	}
}

func mcastParse(b []byte) wire.Header {
	if len(b) > wire.HeaderSize {
		return wire.ParseSum(b)
	}
	return wire.ParseHeader(b)
}

// FrameCharge estimates what a kernel charges a socket for a datagram of this size from a network
// card. Drivers put a frame into a buffer of a power of two. The buffer also holds the headroom and the
// descriptor of the fragments (NET_SKB_PAD and skb_shared_info, together below 400 bytes), and struct
// sk_buff is charged in addition. Most drivers charge 2304 bytes for an MTU of 1500.
func FrameCharge(frame int) int {
	size := 512
	for size < frame+ethernet+400 {
		size *= 2
	}
	return size + 256
}

// mcastRoom is the number of datagrams that fit a receive buffer, by their charge.
func mcastRoom(buffer, charge int) int { return max(1, UsableBuffer(buffer)/max(1, charge)) }

// UsableBuffer is the part of a receive buffer that datagrams may fill.
//
// A quarter of the buffer is not usable. While the queue is not empty, the kernel releases the charge of
// datagrams that were read in portions of up to a quarter of the buffer (udp_rmem_release). Chunks that
// were read, and for which other ranks have credit, are thus still charged. A sixteenth is a reserve for
// foreign datagrams and duplicates.
func UsableBuffer(buffer int) int { return buffer - buffer/4 - buffer/16 }
