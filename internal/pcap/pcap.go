// Package pcap writes the packets of a simulated RDMA network as a capture
// file that Wireshark opens and dissects as RoCE v2: Ethernet, IPv4, UDP to
// port 4791, and inside it the InfiniBand transport headers.
//
// The simulator moves messages, not frames, so it does not know most header fields. The Writer
// fills them in as a network card would. Addresses identify the hosts: host h (below 1<<20) is
// 10.0.0.1 + h, and group g (below 1<<18) is 239.192.0.0 + g. A message that is longer than the MTU
// becomes several packets.
//
// Three rules keep Wireshark from calling correct packets malformed:
//   - Packets are recorded whole. Wireshark calls a truncated payload malformed.
//   - The payload of data is zeros. Wireshark guesses the protocol of a payload from its first bytes,
//     and the simulator's test pattern would look like any protocol.
//   - A control message starts with messageTag, and its packet carries an immediate, for the same
//     reason: without them, some messages look like IPv4 or RPC over RDMA.
package pcap

import (
	"bufio"
	"encoding/binary"
	"io"
)

const (
	fileMagicNano = 0xa1b23c4d // pcap whose record times are in nanoseconds
	linkEthernet  = 1

	fileHeaderLen   = 24
	recordHeaderLen = 16

	fileSnap = 65535 // longer than any record
)

// A Writer writes one capture. It is not safe for concurrent use.
//
// The packet methods return no error, so that a simulator's inner loop need not check one. After
// the first write error the Writer writes nothing more, and Close returns the error.
type Writer struct {
	out *bufio.Writer
	psn uint32 // number of the next packet

	// The packet being built. These buffers are fields because a value passed to an io.Writer
	// escapes, which would cost one allocation per packet.
	headers [maxHeaders]byte
	payload [MTU]byte
	trailer [maxTrailer]byte
	masked  [maxHeaders]byte
}

// NewWriter starts a capture on w. It flushes the file header at once, so that an unwritable
// destination fails before the simulation runs.
func NewWriter(w io.Writer) (*Writer, error) {
	var h [fileHeaderLen]byte
	le := binary.LittleEndian
	le.PutUint32(h[0:], fileMagicNano)
	le.PutUint16(h[4:], 2) // version 2.4, the only one in use
	le.PutUint16(h[6:], 4)
	le.PutUint32(h[16:], fileSnap) // between them, time zone and accuracy: always 0
	le.PutUint32(h[20:], linkEthernet)

	pw := &Writer{out: bufio.NewWriterSize(w, 1<<16)}
	pw.out.Write(h[:]) // an error stays in the bufio.Writer, and Flush returns it
	if err := pw.out.Flush(); err != nil {
		return nil, err
	}
	return pw, nil
}

// Close flushes the buffer and returns the first error of the whole capture. It does not close the
// io.Writer given to NewWriter.
func (w *Writer) Close() error { return w.out.Flush() }

// record writes one packet. headers begins with room for the record header.
func (w *Writer) record(at int64, headers, payload, trailer []byte) {
	// A simulation starts at the file format's epoch, 1970: the wall clock
	// would make two captures of the same run differ.
	at = max(at, 0)
	length := uint32(len(headers) - recordHeaderLen + len(payload) + len(trailer))

	le := binary.LittleEndian
	le.PutUint32(headers[0:], uint32(at/1e9))
	le.PutUint32(headers[4:], uint32(at%1e9))
	le.PutUint32(headers[8:], length)
	le.PutUint32(headers[12:], length)

	w.out.Write(headers)
	w.out.Write(payload)
	w.out.Write(trailer)
}
