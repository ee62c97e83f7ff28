package pcap

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// packet is one parsed record.
type packet struct {
	at             int64
	length         int // of the frame
	dstMAC, srcMAC string
	srcIP, dstIP   string
	ipLen, udpLen  int
	srcPort        int
	opcode         int
	pad            int
	destQP, psn    uint32
	ackReq         bool
	ext, payload   []byte // extended transport headers; the payload
	icrc           uint32
}

// parse parses a whole capture. It shares no code and no offsets with the writer. It fails the test if
// the capture or a packet is malformed.
func parse(t testing.TB, file []byte) []packet {
	t.Helper()
	be, le := binary.BigEndian, binary.LittleEndian
	if len(file) < 24 || le.Uint32(file) != 0xa1b23c4d || le.Uint16(file[4:]) != 2 ||
		le.Uint16(file[6:]) != 4 || le.Uint64(file[8:]) != 0 || le.Uint32(file[20:]) != 1 {
		t.Fatalf("bad file header % x", file[:min(len(file), 24)])
	}
	snap := int(le.Uint32(file[16:]))
	file = file[24:]

	var all []packet
	for len(file) > 0 {
		if len(file) < 16 {
			t.Fatalf("%d stray bytes after packet %d", len(file), len(all))
		}
		p := packet{
			at:     int64(le.Uint32(file))*1e9 + int64(le.Uint32(file[4:])),
			length: int(le.Uint32(file[12:])),
		}
		if le.Uint32(file[4:]) >= 1e9 {
			t.Fatalf("nanoseconds %d", le.Uint32(file[4:]))
		}
		captured := int(le.Uint32(file[8:]))
		file = file[16:]
		if captured > len(file) || captured != p.length || captured > snap {
			t.Fatalf("record of %d of %d bytes, snap %d, %d left", captured, p.length, snap, len(file))
		}
		f := file[:captured]
		file = file[captured:]
		if len(f) < 14+20+8+12 {
			t.Fatalf("truncated headers: % x", f)
		}

		p.dstMAC, p.srcMAC = mac(f[:6]), mac(f[6:12])
		ip, udp, bth := f[14:34], f[34:42], f[42:54]
		if be.Uint16(f[12:]) != 0x0800 || ip[0] != 0x45 || ip[8] != 64 || ip[9] != 17 || be.Uint16(ip[6:]) != 0x4000 {
			t.Fatalf("not the expected IPv4 packet: % x", f[:34])
		}
		sum := 0
		for i := 0; i < 20; i += 2 {
			sum += int(be.Uint16(ip[i:]))
		}
		if sum%65535 != 0 { // the ones' complement sum is 0 with a correct checksum
			t.Fatalf("IPv4 checksum: % x", ip)
		}
		p.srcIP, p.dstIP = fmt.Sprint(ip[12], ip[13], ip[14], ip[15]), fmt.Sprint(ip[16], ip[17], ip[18], ip[19])
		p.ipLen, p.udpLen, p.srcPort = int(be.Uint16(ip[2:])), int(be.Uint16(udp[4:])), int(be.Uint16(udp))
		if p.udpLen != p.ipLen-20 || p.length != 14+p.ipLen {
			t.Fatalf("lengths: frame %d, IP %d, UDP %d", p.length, p.ipLen, p.udpLen)
		}
		if be.Uint16(udp[2:]) != 4791 || p.srcPort < 0xc000 || be.Uint16(udp[6:]) != 0 {
			t.Fatalf("UDP: % x", udp)
		}

		p.opcode = int(bth[0])
		p.pad = int(bth[1] >> 4 & 3)
		p.destQP, p.psn = be.Uint32(bth[4:]), be.Uint32(bth[8:])&0xffffff
		p.ackReq = bth[8]&0x80 != 0
		if bth[1]&0x8f != 0 || be.Uint16(bth[2:]) != 0xffff || bth[4] != 0 || bth[8]&0x7f != 0 {
			t.Fatalf("BTH: % x", bth)
		}
		ext, ok := map[int]int{
			0x00: 0, 0x01: 0, 0x03: 4, 0x05: 4, // RC SEND: first, middle, last and only, the last two with immediate
			0x0c: 16, 0x0d: 4, 0x0e: 0, 0x0f: 4, 0x10: 4, // RC READ: request, and the response
			0x20: 0, 0x21: 0, 0x23: 4, 0x25: 4, // UC SEND
			0x65: 12, // UD SEND only with immediate
		}[p.opcode]
		if !ok || len(f) < 54+ext {
			t.Fatalf("opcode %#x in %d bytes", p.opcode, len(f))
		}
		p.ext = f[54 : 54+ext]

		length := p.length - 54 - ext - p.pad - 4
		if (length+p.pad)%4 != 0 || length < 0 || length > 4096 {
			t.Fatalf("payload of %d bytes, %d of padding", length, p.pad)
		}
		rest := f[54+ext:]
		p.payload = rest[:length]
		p.icrc = le.Uint32(f[len(f)-4:])
		want := slowICRC(f[14 : len(f)-4])
		if p.icrc != want {
			t.Fatalf("ICRC %08x, want %08x", p.icrc, want)
		}
		for _, b := range rest[length : length+p.pad] {
			if b != 0 {
				t.Fatalf("padding: % x", rest[length:])
			}
		}
		all = append(all, p)
	}
	return all
}

func mac(b []byte) string {
	return fmt.Sprintf("%x:%x:%x:%x:%x:%x", b[0], b[1], b[2], b[3], b[4], b[5])
}

// slowICRC computes the ICRC of a packet, starting at its IPv4 header, bit by bit.
func slowICRC(p []byte) uint32 {
	crc := ^uint32(0)
	for i := -8; i < len(p); i++ {
		b := byte(0xff)
		switch i {
		case -8, -7, -6, -5, -4, -3, -2, -1: // replaces the LRH
		case 1, 8, 10, 11: // TOS, TTL, checksum
		case 26, 27: // UDP checksum
		case 32: // BTH: FECN, BECN, reserved
		default:
			b = p[i]
		}
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0xedb88320*(crc&1)
		}
	}
	return ^crc
}
