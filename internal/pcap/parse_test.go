package pcap

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// packet is one parsed record.
type packet struct {
	at             int64
	incl, orig     int
	dstMAC, srcMAC string
	srcIP, dstIP   string
	ipLen, udpLen  int
	srcPort        int
	opcode         int
	pad            int
	destQP, psn    uint32
	ackReq         bool
	ext, payload   []byte // extended transport headers; the recorded payload
	length         int    // length of the payload, derived from the UDP length
	complete       bool   // whether the record includes padding and ICRC
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
			at:   int64(le.Uint32(file))*1e9 + int64(le.Uint32(file[4:])),
			incl: int(le.Uint32(file[8:])),
			orig: int(le.Uint32(file[12:])),
		}
		if le.Uint32(file[4:]) >= 1e9 {
			t.Fatalf("nanoseconds %d", le.Uint32(file[4:]))
		}
		file = file[16:]
		if p.incl > len(file) || p.incl > p.orig || p.incl > snap {
			t.Fatalf("record of %d of %d bytes, snap %d, %d left", p.incl, p.orig, snap, len(file))
		}
		f := file[:p.incl]
		file = file[p.incl:]
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
		if p.udpLen != p.ipLen-20 || p.orig < 14+p.ipLen || p.orig > 14+p.ipLen && p.ipLen != 65535 {
			t.Fatalf("lengths: frame %d, IP %d, UDP %d", p.orig, p.ipLen, p.udpLen)
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
		ext, ok := map[int]int{0x65: 12, 0x04: 0, 0x0c: 16, 0x10: 4}[p.opcode]
		if !ok || len(f) < 54+ext {
			t.Fatalf("opcode %#x in %d bytes", p.opcode, len(f))
		}
		p.ext = f[54 : 54+ext]

		p.length = p.orig - 54 - ext - p.pad - 4
		if (p.length+p.pad)%4 != 0 || p.length < 0 {
			t.Fatalf("payload of %d bytes, %d of padding", p.length, p.pad)
		}
		rest := f[54+ext:]
		p.payload = rest[:min(len(rest), p.length)]
		p.complete = p.incl == p.orig
		if !p.complete && len(rest) > p.length {
			t.Fatalf("record truncated within the trailer: %d of %d bytes", p.incl, p.orig)
		}
		if p.complete {
			p.icrc = le.Uint32(f[len(f)-4:])
			want := slowICRC(f[14 : len(f)-4])
			if p.icrc != want {
				t.Fatalf("ICRC %08x, want %08x", p.icrc, want)
			}
			for _, b := range rest[p.length : p.length+p.pad] {
				if b != 0 {
					t.Fatalf("padding: % x", rest[p.length:])
				}
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
