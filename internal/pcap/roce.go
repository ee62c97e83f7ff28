package pcap

import "encoding/binary"

// InfiniBand transport opcodes: the service (RC 0x00, UD 0x60) and the operation.
const (
	rcSendOnly         = 0x04
	rcReadRequest      = 0x0c
	rcReadResponseOnly = 0x10
	udSendOnlyImm      = 0x65
)

const (
	migrated   = 0x40   // BTH flag; hardware sets it when path migration is unused
	defaultKey = 0xffff // partition key: full member of the default partition
	ackRequest = 1 << 31

	multicastQP = 0xffffff   // the destination QP of every multicast packet
	groupKey    = 0x01234567 // Q_Key: the RDMA connection manager's for UD
	memoryKey   = 0x00001000 // R_Key: simulated memory is not protected, any will do
	ackNoCredit = 0x1f << 24 // AETH syndrome: ACK, without end-to-end credits
)

// udQP is the number of the QP from which a host sends datagrams, rcQP that of its QP for a peer. A
// card would assign numbers; these show the peer, and avoid the reserved 0, 1 and 0xffffff.
func udQP(host int) uint32 { return 0x100000 | uint32(host)&hostMask }
func rcQP(peer int) uint32 { return 0x200000 | uint32(peer)&hostMask }

// Datagram records an unreliable datagram with immediate data that host src multicasts to a group.
// length is the size of the payload on the wire. payload may hold fewer bytes, or none, if the
// simulator does not move them: the record is then marked as truncated, but the headers have the
// true lengths. The same holds for the other methods.
func (w *Writer) Datagram(at int64, src, group int, imm, psn uint32, payload []byte, length int) {
	h := w.transport(udSendOnlyImm, multicastQP, psn&psnMask)
	h = binary.BigEndian.AppendUint32(h, groupKey) // DETH
	h = binary.BigEndian.AppendUint32(h, udQP(src))
	h = binary.BigEndian.AppendUint32(h, imm) // ImmDt
	w.packet(at, hostAddress(src), groupAddress(group), h, payload, length)
}

// Message records a message of a reliable connection. It is always one packet, as in the simulator;
// a real card would segment it to fit the MTU.
func (w *Writer) Message(at int64, src, dst int, psn uint32, payload []byte, length int) {
	h := w.transport(rcSendOnly, rcQP(src), ackRequest|psn&psnMask)
	w.packet(at, hostAddress(src), hostAddress(dst), h, payload, length)
}

// ReadRequest records that host src asks for length bytes of the memory of host
// dst, from address vaddr on.
func (w *Writer) ReadRequest(at int64, src, dst int, psn uint32, vaddr uint64, length uint32) {
	h := w.transport(rcReadRequest, rcQP(src), ackRequest|psn&psnMask)
	h = binary.BigEndian.AppendUint64(h, vaddr) // RETH
	h = binary.BigEndian.AppendUint32(h, memoryKey)
	h = binary.BigEndian.AppendUint32(h, length)
	w.packet(at, hostAddress(src), hostAddress(dst), h, nil, 0)
}

// ReadResponse records the answer of host src to a ReadRequest; psn is that of the request. Like a
// Message it is always one packet.
func (w *Writer) ReadResponse(at int64, src, dst int, psn uint32, payload []byte, length int) {
	h := w.transport(rcReadResponseOnly, rcQP(src), psn&psnMask)
	// AETH. Its message count is the number of completed requests. With one packet per message, the
	// PSN counts messages.
	h = binary.BigEndian.AppendUint32(h, ackNoCredit|(psn+1)&psnMask)
	w.packet(at, hostAddress(src), hostAddress(dst), h, payload, length)
}

const psnMask = 0xffffff // PSNs and message counts have 24 bits

// transport starts a packet with the base transport header (BTH), after room for the headers that
// packet adds before it. last is the header's last word: the PSN and the acknowledgement request.
func (w *Writer) transport(opcode byte, destQP, last uint32) []byte {
	h := append(w.headers[:bthAt], opcode, migrated) // packet adds the pad count
	h = binary.BigEndian.AppendUint16(h, defaultKey)
	h = binary.BigEndian.AppendUint32(h, destQP)
	return binary.BigEndian.AppendUint32(h, last)
}
