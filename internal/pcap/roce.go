package pcap

import "encoding/binary"

// MTU is the largest payload of a packet.
const MTU = 4096

// InfiniBand transport opcodes: the service (RC 0x00, UC 0x20, UD 0x60) and the operation.
const (
	rcReadRequest = 0x0c
	udSendOnlyImm = 0x65
)

// opcodes holds the opcodes of a message by the place of its packet.
type opcodes struct{ first, middle, last, only byte }

var (
	rcSend     = opcodes{first: 0x00, middle: 0x01, last: 0x03, only: 0x05} // with immediate in the last packet
	rcResponse = opcodes{first: 0x0d, middle: 0x0e, last: 0x0f, only: 0x10}
	ucSend     = opcodes{first: 0x20, middle: 0x21, last: 0x23, only: 0x25} // as rcSend
)

const (
	migrated   = 0x40   // BTH flag; hardware sets it when path migration is unused
	defaultKey = 0xffff // partition key: full member of the default partition
	ackRequest = 1 << 31
	psnMask    = 0xffffff // PSNs and message counts have 24 bits

	multicastQP = 0xffffff   // the destination QP of every multicast packet
	groupKey    = 0x01234567 // Q_Key: the RDMA connection manager's for UD
	memoryKey   = 0x00001000 // R_Key: simulated memory is not protected, any will do
	ackNoCredit = 0x1f << 24 // AETH syndrome: ACK, without end-to-end credits
)

// messageTag precedes a control message. No protocol that Wireshark knows inside InfiniBand starts with it.
const messageTag = "msg:"

// udQP is the number of the QP from which a host sends datagrams, rcQP that of its QP for a peer. A
// card would assign numbers; these show the peer, and avoid the reserved 0, 1 and 0xffffff.
func udQP(host int) uint32 { return 0x100000 | uint32(host)&hostMask }
func rcQP(peer int) uint32 { return 0x200000 | uint32(peer)&hostMask }

// Datagram records an unreliable datagram with immediate data that host src multicasts to a group. The
// length is that of its payload. A datagram that is longer than the MTU is a message of
// an unreliable connection (UC), as for a real card. So is an empty one, in which Wireshark would look for an
// Ethernet frame.
func (w *Writer) Datagram(at int64, src, group int, imm uint32, length int) {
	from, to := hostAddress(src), groupAddress(group)
	if length > 0 && length <= MTU {
		h := w.transport(udSendOnlyImm, multicastQP, 0)
		h = binary.BigEndian.AppendUint32(h, groupKey) // DETH
		h = binary.BigEndian.AppendUint32(h, udQP(src))
		h = binary.BigEndian.AppendUint32(h, imm) // ImmDt
		w.packet(at, from, to, h, w.data(length))
		return
	}
	segment(ucSend, length, MTU, func(opcode byte, size int) {
		h := w.transport(opcode, multicastQP, 0)
		if opcode == ucSend.last || opcode == ucSend.only {
			h = binary.BigEndian.AppendUint32(h, imm)
		}
		w.packet(at, from, to, h, w.data(size))
	})
}

// Message records a control message of a reliable connection. The immediate is the first byte of the
// message, which is its kind.
func (w *Writer) Message(at int64, src, dst int, message []byte) {
	var kind uint32
	if len(message) > 0 {
		kind = uint32(message[0])
	}
	rest := message
	segment(rcSend, len(message), MTU-len(messageTag), func(opcode byte, size int) {
		payload := append(append(w.payload[:0], messageTag...), rest[:size]...)
		rest = rest[size:]
		w.send(at, src, dst, opcode, kind, payload)
	})
}

// Send records data of the given length on a reliable connection. Its immediate is 0.
func (w *Writer) Send(at int64, src, dst, length int) {
	segment(rcSend, length, MTU, func(opcode byte, size int) {
		w.send(at, src, dst, opcode, 0, w.data(size))
	})
}

func (w *Writer) send(at int64, src, dst int, opcode byte, imm uint32, payload []byte) {
	h := w.transport(opcode, rcQP(src), ackRequest)
	if opcode == rcSend.last || opcode == rcSend.only {
		h = binary.BigEndian.AppendUint32(h, imm)
	}
	w.packet(at, hostAddress(src), hostAddress(dst), h, payload)
}

// ReadRequest records that host src asks for length bytes of the memory of host
// dst, from address vaddr on.
func (w *Writer) ReadRequest(at int64, src, dst int, vaddr uint64, length uint32) {
	h := w.transport(rcReadRequest, rcQP(src), ackRequest)
	h = binary.BigEndian.AppendUint64(h, vaddr) // RETH
	h = binary.BigEndian.AppendUint32(h, memoryKey)
	h = binary.BigEndian.AppendUint32(h, length)
	w.packet(at, hostAddress(src), hostAddress(dst), h, nil)
}

// ReadResponse records that host src answers a ReadRequest of host dst with data of the given length.
func (w *Writer) ReadResponse(at int64, src, dst, length int) {
	segment(rcResponse, length, MTU, func(opcode byte, size int) {
		h := w.transport(opcode, rcQP(src), 0)
		if opcode != rcResponse.middle { // AETH
			h = binary.BigEndian.AppendUint32(h, ackNoCredit|w.psn&psnMask)
		}
		w.packet(at, hostAddress(src), hostAddress(dst), h, w.data(size))
	})
}

// segment calls the function for each packet of a message, which has at most limit bytes of it.
func segment(o opcodes, length, limit int, packet func(opcode byte, size int)) {
	if length <= limit {
		packet(o.only, length)
		return
	}
	packet(o.first, limit)
	for length -= limit; length > limit; length -= limit {
		packet(o.middle, limit)
	}
	packet(o.last, length)
}

// data returns a payload of zeros.
func (w *Writer) data(length int) []byte {
	payload := w.payload[:min(max(length, 0), MTU)]
	clear(payload)
	return payload
}

// transport starts a packet with the base transport header (BTH), after room for the headers that
// packet adds before it. The header's last word has the flags and the PSN. PSNs number all packets of a
// capture.
func (w *Writer) transport(opcode byte, destQP, flags uint32) []byte {
	h := append(w.headers[:bthAt], opcode, migrated) // packet adds the pad count
	h = binary.BigEndian.AppendUint16(h, defaultKey)
	h = binary.BigEndian.AppendUint32(h, destQP)
	h = binary.BigEndian.AppendUint32(h, flags|w.psn&psnMask)
	w.psn++
	return h
}
