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

// udQP numbers the QP from which a host sends datagrams, rcQP the one it keeps
// for a peer. Real numbers are handed out by the card; these let a reader see
// who is at the other end, and leave the reserved 0, 1 and 0xffffff alone.
func udQP(host int) uint32 { return 0x100000 | uint32(host)&hostMask }
func rcQP(peer int) uint32 { return 0x200000 | uint32(peer)&hostMask }

// Datagram records an unreliable datagram with immediate data, multicast by
// host src to a group. length is what the payload measures on the wire; payload
// may hold fewer bytes of it, or none, when the simulator does not move them.
// This holds for all methods here: the record is then marked as cut short,
// while the lengths in the headers are the true ones.
func (w *Writer) Datagram(at int64, src, group int, imm, psn uint32, payload []byte, length int) {
	h := w.transport(udSendOnlyImm, multicastQP, psn&psnMask)
	h = binary.BigEndian.AppendUint32(h, groupKey) // DETH
	h = binary.BigEndian.AppendUint32(h, udQP(src))
	h = binary.BigEndian.AppendUint32(h, imm) // ImmDt
	w.packet(at, hostAddress(src), groupAddress(group), h, payload, length)
}

// Message records a message of a reliable connection. However long, it is one
// packet, as in the simulator; a real card would cut it up to fit the MTU.
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

// ReadResponse records the answer to a ReadRequest. The one who answers is src,
// and psn is that of the request. Like a Message it is always one packet.
func (w *Writer) ReadResponse(at int64, src, dst int, psn uint32, payload []byte, length int) {
	h := w.transport(rcReadResponseOnly, rcQP(src), psn&psnMask)
	// AETH. Its message count is that of the completed requests: with one
	// packet for each message, the PSN counts messages.
	h = binary.BigEndian.AppendUint32(h, ackNoCredit|(psn+1)&psnMask)
	w.packet(at, hostAddress(src), hostAddress(dst), h, payload, length)
}

const psnMask = 0xffffff // PSNs and message counts have 24 bits

// transport starts a packet with the base transport header (BTH), after room
// for the headers that packet will put before it. last is the header's last
// word: the PSN, and whether an acknowledgement is asked for.
func (w *Writer) transport(opcode byte, destQP, last uint32) []byte {
	h := append(w.headers[:bthAt], opcode, migrated) // packet adds the pad count
	h = binary.BigEndian.AppendUint16(h, defaultKey)
	h = binary.BigEndian.AppendUint32(h, destQP)
	return binary.BigEndian.AppendUint32(h, last)
}
