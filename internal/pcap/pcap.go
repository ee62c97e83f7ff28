// Package pcap writes the packets of a simulated RDMA network as a capture
// file that Wireshark opens and dissects as RoCE v2: Ethernet, IPv4, UDP to
// port 4791, and inside it the InfiniBand transport headers.
//
// The simulator moves messages, not frames, so it does not know most header fields. The Writer
// fills them in as a network card would. Addresses identify the hosts: host h (below 1<<20) is
// 10.0.0.1 + h, and group g (below 1<<18) is 239.192.0.0 + g.
//
// Wireshark calls some correct packets malformed. It does so in the Info column
// of every packet with a payload that was not recorded whole, and it tries to
// read payloads as other protocols: a Message of less than 16 bytes always
// trips its RPC over RDMA (--disable-protocol rpcordma), an empty Datagram its
// Ethernet over InfiniBand (infiniband.eoib). The headers are shown correctly
// all the same.
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

	// fileSnap is the record limit the file declares: the largest that
	// Wireshark accepts, so that Snap may change during a capture.
	fileSnap = 262144

	defaultSnap = 128
	maxSnap     = 65535
)

// A Writer writes one capture. It is not safe for concurrent use.
//
// The packet methods return no error, so that a simulator's inner loop need not check one. After
// the first write error the Writer writes nothing more, and Close returns the error.
type Writer struct {
	// Snap is the maximum number of recorded bytes per payload. Headers are always recorded
	// completely. NewWriter sets it to 128: enough to recognise a payload, and small enough for a
	// capture of a large collective.
	Snap int

	out *bufio.Writer

	// The packet being built. These buffers are fields because a value passed to an io.Writer
	// escapes, which would cost one allocation per packet.
	headers [maxHeaders]byte
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

	pw := &Writer{Snap: defaultSnap, out: bufio.NewWriterSize(w, 1<<16)}
	pw.out.Write(h[:]) // an error stays in the bufio.Writer, and Flush returns it
	if err := pw.out.Flush(); err != nil {
		return nil, err
	}
	return pw, nil
}

// Close flushes the buffer and returns the first error of the whole capture. It does not close the
// io.Writer given to NewWriter.
func (w *Writer) Close() error { return w.out.Flush() }

// record writes one packet. headers begins with room for the record header;
// frame is the length of the packet on the wire, of which headers, payload and
// trailer are the recorded part.
func (w *Writer) record(at int64, frame int, headers, payload, trailer []byte) {
	// A simulation starts at the file format's epoch, 1970: the wall clock
	// would make two captures of the same run differ.
	at = max(at, 0)
	captured := len(headers) - recordHeaderLen + len(payload) + len(trailer)

	le := binary.LittleEndian
	le.PutUint32(headers[0:], uint32(at/1e9))
	le.PutUint32(headers[4:], uint32(at%1e9))
	le.PutUint32(headers[8:], uint32(captured))
	le.PutUint32(headers[12:], uint32(frame))

	w.out.Write(headers)
	w.out.Write(payload)
	w.out.Write(trailer)
}
